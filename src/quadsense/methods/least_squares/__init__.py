"""Least squares within intervals, by steps of the first order: the mathematics of `least_squares`.

`program` brings a question to one scale, `quadratic` knows what least squares costs, `cone` where A
may lie, `bounds` what a dual vector proves. `descent` is FISTA on the cone, `splitting` ADMM where
ends of intervals bind, `direct` the solution without a cone, `polish` moves a factor onto ends;
`phases` puts them together. Least squared misses are another matter: `misses` and `hinge`, with the
Newton system in `system`.
"""
