"""Tasks whose states are vectors and whose dynamics are learned from the log.

Read `sampled` (the problem), then `basis` (functions of the state), `outcomes` (the first stage: what an action leads to) with
its `smoothing`, which is chosen by `held_out` decisions, `design` (both at every decision) with its `roughness` penalty,
`values` (the experts' plans), `sieve_likelihood` (decisions as a function of reward and discounts) and its `two_stage` starts,
`selection` (which coordinates, how many functions, how much penalty), `limits` (what the data cannot tell), `errors` and
`resampling` (standard errors that carry the first stage), `answer` (the `Solution`), `solver`, which runs them in order, and
last `functions` and `discount_tests`, which read the answer.
"""
