"""From logged decisions to estimates, and how sure they are.

Read in this order: `search` (one climb and several maxima), `clusters` (what is independent), `intervals` (how sure an answer
is), `random_effects` (spreads of temperatures and rewards), `estimates`, `separate` (experts one by one), `look_ahead` (other
weights of the future), `maximum_likelihood` (the solver), `sieve` (the solver for continuous states), `action_rewards` (tests).
"""
