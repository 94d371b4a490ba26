"""Planning with a known reward. Read in this order:

* `linear`: solves with `I − γP`, direct or iterative by size;
* `evaluation`: what one policy is worth and where it goes;
* `plan`: the best policy, by policy iteration that starts from sweeps;
* `soft_plan`: the best policy when entropy is rewarded, by Newton's method; and for weights of the future that need not be
  exponential, in tasks with a limited number of steps;
* `breakpoints`: the discounts at which the best policy changes.
"""
