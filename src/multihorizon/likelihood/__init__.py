"""From logged decisions to estimates, and how sure they are.

Read in this order: `ascent` (one climb), `intervals` (how sure an answer is), `look_ahead` (other weights of the future),
`maximum_likelihood` (starts, search, temperatures, the solver), `sieve` (the solver for states that are vectors).
"""
