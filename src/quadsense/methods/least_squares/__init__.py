"""Least squares within intervals, by steps of the first order: the mathematics of `least_squares`.

`program` brings a question to one scale and knows what least squares costs, `cone` where A may lie,
`bounds` what a dual vector proves of a state. `steps` has FISTA on the cone and ADMM where ends of
intervals bind, `direct` the solution without a cone and by cuts, `face` moves a factor onto ends
and takes Newton steps on the face of the answer; `phases` puts them together. Least squared misses
are another matter: `misses` and `hinge`, with the Newton system in `system`.
"""
