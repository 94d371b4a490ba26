"""
More decisions, narrower confidence intervals
=============================================

Three experts cross the cliff. With more walks the 95% CIs of their discount factors become narrower, like one over the root of
the number of walks. The dashed lines are the true discount factors.
"""

import matplotlib.pyplot as plt

import multihorizon as mh

cliff = mh.domains.cliff()
names = ["Ann", "Bo", "Cy"]
episodes = [50, 100, 200, 400, 800, 1600]
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for number, count in enumerate(episodes):
    walks = mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), count, names=names)
    found = (
        mh.solve(mh.Problem(cliff.mdp, walks), mh.MaximumLikelihood())
        .to_frame(0.95)
        .set_index("expert")
    )
    for k, name in enumerate(names):
        low, discount, high = found.loc[name, ["discount_low", "discount", "discount_high"]]
        ax.plot(
            [number + 0.12 * k] * 2,
            [low, high],
            color=f"C{k}",
            lw=3,
            label=name if number == 0 else None,
        )
        ax.plot(number + 0.12 * k, discount, "o", color="white", markeredgecolor=f"C{k}")
for k, discount in enumerate(cliff.soft_discounts):
    ax.axhline(discount, color=f"C{k}", ls="--", lw=1)
ax.set_xticks([number + 0.12 for number in range(len(episodes))], episodes)
ax.set(xlabel="walks of each", ylabel="discount factor γ, with 95% CI")
ax.legend(frameon=False)
plt.show()
