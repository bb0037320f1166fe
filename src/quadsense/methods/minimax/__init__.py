"""The smallest worst error, with both bounds, and proofs of infeasibility."""
