"""The interior-point method behind `minimax`, its proofs, and outliers."""
