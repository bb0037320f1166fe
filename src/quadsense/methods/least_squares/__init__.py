"""Least squares within intervals, by steps of the first order: the mathematics of `least_squares`.

`program` brings a question to one scale and knows what least squares costs, `cone` where A may lie,
`bounds` what a dual vector proves of a state. `steps` has FISTA on the cone, `direct` the solution
without a cone and by cuts, `face` moves a factor onto ends and takes Newton steps on the face of
the answer; `phases` puts them together, and `method` goes on with `consensus` where ends of
intervals bind over the cone. Least squared misses are another matter: `hinge`.
"""
