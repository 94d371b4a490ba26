"""
Convergence of the search over discount factors
===============================================

The paper searches over the discount factors by Bayesian optimisation and solves a linear program at each of them. The dashed
line is the optimum that sequential linear programming finds, in less time and without a search over a box.
"""

import matplotlib.pyplot as plt

import multihorizon as mh

figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for ax, domain in zip(panels, (mh.domains.toy(), mh.domains.cliff()), strict=True):
    problem = mh.Problem(domain.mdp, domain.hard_experts())
    optimum = mh.solve(problem, mh.MPLP(reward_bound=20)).objective
    searched = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.Bayesian(25)))
    ax.step(range(1, len(searched.trace) + 1), searched.trace.best, where="post")
    ax.axhline(optimum, color="black", ls="--")
    ax.set(title=domain.name, xlabel="evaluations")
panels[0].set_ylabel("best objective so far")
plt.show()
