"""The interior-point method for every convex request."""
