"""
Results in a notebook and in a paper
====================================

Every result has a summary in sentences, tables, a view for notebooks, a figure for a column of a paper, and LaTeX and Markdown
tables. This page is a notebook: it can be downloaded below and run cell by cell.
"""

import matplotlib.pyplot as plt

import multihorizon as mh

# %%
# Three people walk along a cliff. They share a reward and differ in their discount factors. At the end of a cell, a result shows
# itself: the size of the data, the solver's message, each estimate with a small picture, and the reward.

cliff = mh.domains.cliff()
walks = mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), 300, names=["Ann", "Bo", "Cy"])
solution = mh.solve(mh.Problem(cliff.mdp, walks), mh.MaximumLikelihood())
solution

# %%
# Profile-likelihood CIs can take a while, so a cell shows them only once they have been computed, by one of ``summary()``,
# ``plot()``, ``to_latex()`` and ``to_markdown()``.

print(solution.summary())

# %%
# The picture is as wide as a column, 3.5 inches, with text of 8 points. ``plot(ax)`` draws in axes of your own. Save it with
# ``solution.plot().figure.savefig("discounts.pdf")``.

solution.plot()
plt.show()

# %%
# The same table for a paper, with the same digits. Its preamble needs ``\usepackage{booktabs}``.

print(solution.to_latex())

# %%
# Other tables are asked for by their captions. This one goes into a README or an issue.

print(solution.to_markdown("reward"))

# %%
# Tests are results too.

mh.pairwise_tests(solution)

# %%
# In a study of groups, the groups come first: the effects of covariates, and a typical participant of each group.

task = mh.domains.space_adventure(mini_blocks=60)
people = task.persons(40, group_difference=0.8)
solver = mh.Population("~ group", people.frame, known_reward=task.reward)
groups = mh.solve(mh.Problem(task.mdp, people.demonstrations), solver)
groups

# %%
# A blue dot is a participant. The black mark above is a typical participant of the group, with its 95% CI.

groups.plot()
plt.show()
