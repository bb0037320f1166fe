"""Many small problems with the same probes: `solve_many`, `ManyResults` and `prepare`."""
