"""Draw the picture of docs/explanation/identifiability.md: how badly the experts' equations fail over the plane of two discounts.

Run: python docs/draw_identifiability.py [docs/images/identifiability.png]
"""

import sys

import matplotlib as mpl
import numpy as np
from scipy.optimize import minimize_scalar

import multihorizon as mh
from multihorizon.exact.equations import JointEquations, joint_equations
from multihorizon.exact.identify import minimise, walk

mpl.use("Agg")
import matplotlib.pyplot as plt

BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85}
LEVELS = np.linspace(-2, 1, 13)


def form_of(domain: mh.domains.Domain, members: tuple[int, ...]) -> JointEquations:
    """The equations of some of a domain's experts, with everything but the discounts projected out."""
    experts = domain.soft_experts()
    problem = mh.Problem(domain.mdp, [experts[i] for i in members])
    return joint_equations(problem)


def plane(form: JointEquations, axis: np.ndarray) -> np.ndarray:
    """The misfit over the plane of the first and last discount, at the best discount of an expert between them."""
    gaps = np.zeros((axis.size, axis.size))
    for i, first in enumerate(axis):
        for j, last in enumerate(axis):
            gaps[j, i] = _best_between(form, first, last)
    return gaps


def _best_between(form: JointEquations, first: float, last: float) -> float:
    if form.n_experts == 2:
        return form.project(np.array([first, last])).gap

    def gap(middle: float) -> float:
        return form.project(np.array([first, middle, last])).gap

    coarse = np.linspace(0, 1, 21)
    best = coarse[np.argmin([gap(middle) for middle in coarse])]
    around = (max(best - 0.05, 0.0), min(best + 0.05, 1.0))
    return min(gap(best), float(minimize_scalar(gap, bounds=around, method="bounded").fun))


def main(path: str) -> None:
    """Draw both panels."""
    axis = np.linspace(0, 1, 41)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.6, 4.4), layout="constrained", sharey=True
    )
    cliff, toy = form_of(mh.domains.cliff(), (1, 2)), form_of(mh.domains.toy(), (0, 1, 2))
    for axes, form in ((left, cliff), (right, toy)):
        gaps = np.log10(np.maximum(plane(form, axis), 1e-3))
        shown = axes.contourf(axis, axis, gaps, LEVELS, cmap="Blues", extend="both")
        axes.set_aspect("equal")
    left.plot(0.2, 0.52, "*", color="black", markersize=13)
    left.annotate(
        "the experts: the only point\nwhere the equations hold",
        (0.2, 0.52),
        (0.3, 0.2),
        arrowprops={"arrowstyle": "-"},
        bbox=BOX,
    )
    left.set(
        title="cliff, two experts: one answer",
        xlabel="discount of the first expert",
        ylabel="discount of the last expert",
    )
    start = minimise(toy, np.array([0.3, 0.5, 0.95]))
    ends = [walk(start, 0, sign, 1, 1e-9) for sign in (-1.0, 1.0)]
    curve = np.array([p.discounts for p in (*ends[0][::-1], *ends[1][1:])])
    right.plot(curve[:, 0], curve[:, 2], color="#b2182b", linewidth=2)
    grid = np.arange(0, 1.01, 0.05)
    right.plot(*np.meshgrid(grid, grid), ".", color="0.35", markersize=1.5)
    right.plot(0.3, 0.95, "*", color="black", markersize=13)
    right.annotate(
        "every point of the curve explains\nthe experts, each with its own reward",
        (0.12, 0.86),
        (0.25, 0.3),
        arrowprops={"arrowstyle": "-"},
        bbox=BOX,
    )
    right.set(title="toy, three experts: a curve of answers", xlabel="discount of the first expert")
    figure.colorbar(shown, ax=(left, right), label="misfit of the equations (log10)", shrink=0.8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/images/identifiability.png")
