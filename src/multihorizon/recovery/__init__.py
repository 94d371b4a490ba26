"""Exact recovery by linear algebra: discounts and reward of soft-optimal experts, and what their policies identify.

Read in this order; each module uses only those above it:

* `normal_equations`, `differences`, `one_expert`: what one expert's policy says about the reward before any discount is known;
* `joint_equations`, `feature_equations`: the system of all experts at given discounts, linear in everything else;
* `linear_system`: the same system made linear in the discounts too, and which directions are identified at a noise level;
* `solution_set`: solving for the discounts where it is not linear, and walking along a set of solutions;
* `identification`, `explanation`: the report in words, and what is checked before it is written;
* `identify`: the verdict;  `closed_form`: `ClosedForm`, the verdict as a solution, and a start for maximum likelihood;
* `goals`: who shares a reward with whom, pair by pair and group by group;
* `feasibility`: the paper's rank test at given discounts, and on a grid of them.
"""
