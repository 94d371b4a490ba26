"""From logged decisions to estimates, and how sure they are.

Read in this order: `ascent` (one climb), `maximum_likelihood` (starts, search, temperatures, the answer), `intervals` (how sure it
is), `look_ahead` (other weights of the future), `sieve` (the solver for states that are vectors), `population` (the solver for a
study of people).
"""
