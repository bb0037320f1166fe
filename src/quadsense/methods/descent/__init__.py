"""The paper's gradient descent (`gd`) and stochastic gradient descent (`sgd`)."""
