"""Maximum causal entropy: the solvers `MCE` (known discounts) and `MPMCE` (discounts searched).

Read in this order: `dual` (the convex dual at fixed discounts, how it is minimised, and its gradient in the discounts), `mce`,
`mpmce` (the three rules of the search, and the climb to the largest entropy among discounts that match).
"""
