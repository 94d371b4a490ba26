"""Planning with a known reward. Read in this order:

* `linear`: solves with `I − γP`, direct or iterative by size;
* `plan`: what one policy is worth and where it goes; the best policy, by policy iteration that starts from sweeps; the best
  policy when entropy is rewarded, by Newton's method, and for weights of the future that need not be exponential;
* `breakpoints`: the discounts at which the best policy changes.
"""
