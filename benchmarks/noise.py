"""How errors in the policies move the discounts, and what `identify` says about it.

Policies are multiplied by exp(noise) of sizes 1e-6 … 1e-1 and rescaled; `identify` is told the size. The last domain has a
reward so weak that its experts are nearly uniform. For each domain and size, over several draws: the largest error in Γ, the
spread of the answers (for sets: of the members given), and how often each status is given. "wrong claims" counts the cases
called unique although the spread or the error over the draws exceeds 0.1; it should be zero.

Run: python benchmarks/noise.py [--draws 20] [--out docs/images/noise.svg]
"""

import argparse
from collections import Counter

import matplotlib as mpl
import numpy as np

import multihorizon as mh

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZES = 10.0 ** np.arange(-6.0, -0.9, 0.5)


def noisy(policy: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    moved = policy * np.exp(size * rng.standard_normal(policy.shape))
    return moved / moved.sum(axis=1, keepdims=True)


def study(domain: mh.domains.Domain, draws: int) -> tuple[list[float], int]:
    experts, truth, errors, wrong = domain.soft_experts(), np.array(domain.soft_discounts), [], 0
    for size in SIZES:
        answers, statuses = [], []
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            found = mh.identify(mh.Problem(domain.mdp, [noisy(p, size, rng) for p in experts]), tolerance=size)
            answers.append(found.discounts)
            statuses.append(found.status)
        spread = float(np.ptp(answers, axis=0).max())
        errors.append(float(np.abs(np.array(answers) - truth).max()))
        wrong += statuses.count("unique") if max(spread, errors[-1]) > 0.1 else 0
        print(f"  noise {size:.1e}: error {errors[-1]:.1e}, spread {spread:.1e}, {dict(Counter(statuses))}", flush=True)
    return errors, wrong


def weak() -> mh.domains.Domain:
    mdp = mh.domains.random_mdp(40, 3, 5, seed=1)
    reward = np.random.default_rng(7).normal(size=40) / 5
    return mh.domains.Domain("weak", mdp, reward, (), (0.2, 0.9), lambda rng: mdp)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for domain, label in (
        (mh.domains.big_small(), "big-small"),
        (mh.domains.cliff(), "cliff"),
        (mh.domains.cliff(ending="absorbing"), "cliff, absorbing"),
        (weak(), "weak reward, 40 states"),
    ):
        print(label)
        errors, wrong = study(domain, options.draws)
        print(f"  wrong claims: {wrong}")
        axes.loglog(SIZES, errors, marker="o", markersize=4, label=label)
    axes.axhline(0.1, color="0.5", linewidth=0.8, linestyle="--")
    axes.text(SIZES[0], 0.115, "spread above which identify does not say unique", fontsize=8, color="0.4", va="bottom")
    axes.set(xlabel="size of the errors in log π", ylabel="largest error in a discount", ylim=(None, 1.5))
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    if options.out:
        figure.savefig(options.out, metadata={"Date": None} if options.out.endswith(".svg") else None)


if __name__ == "__main__":
    main()
