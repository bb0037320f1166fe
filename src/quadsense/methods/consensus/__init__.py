"""Least squares within intervals by consensus ADMM: no matrix of the order of A's entries.

A question is ``min sum_i phi_i(v_i) + alpha ||A - P||_F^2`` over ``v = F(A)`` and A in a cone. The
readings v and A itself get copies of their own, and Z ties them together:

    Z   minimizes  alpha ||Z - P||^2 + sum_i rho_i (F(Z)_i - v_i + r_i)^2 + sigma ||Z - X + U||^2
    v_i minimizes  phi_i(v_i) + rho_i (F(Z)_i - v_i + r_i)^2              (`ProximalTerm`)
    X   is the member of the cone that is nearest to Z + U                (`Cone`; only where psd)
    r   += F(Z) - v,   U += Z - X

`program` has the step in Z and what a dual vector proves; `steps` puts them
together.
"""
