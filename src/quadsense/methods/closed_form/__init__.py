"""The closed form for orthonormal rows: `method` and its `traits`."""
