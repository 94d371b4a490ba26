"""Planning horizons in intensive care
===================================

Planning horizons in intensive care: planted experts on the ICU-Sepsis benchmark.

.. code-block:: console

    $ pip install icu-sepsis --no-deps
    $ python examples/icu_sepsis_experts.py

ICU-Sepsis (Choudhary et al., 2024) is an MDP estimated from intensive-care records: 716 clusters of patients' states, 25 doses of
fluids and vasopressors, and in each state the doses that physicians gave often enough to know where they lead. Only those are
available here. Four experts treat patients for one reward (survival, death, and a cost for each point of the SOFA score of organ
failure in which a patient arrives) with discount factors 0.5, 0.8, 0.95 and 0.99.

From their policies `identify` finds the discounts exactly, with one unknown reward per state. From 5,000 episodes each `fit`
finds them with intervals, the reward being made of three features.

Only the package's data files are read: importing it would need the retired `gym`, so its dependencies may be left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import multihorizon as mh

DISCOUNTS = (0.5, 0.8, 0.95, 0.99)
NAMES = tuple(f"planted {gamma}" for gamma in DISCOUNTS)
FEATURES = ("death", "survival", "SOFA score")
WEIGHTS = np.array([-10.0, 20.0, -0.5])


def assets() -> Path:
    """Where the installed package keeps its data."""
    found = importlib.util.find_spec("icu_sepsis")
    if found is None or not found.submodule_search_locations:
        raise ImportError("this example needs icu-sepsis: pip install icu-sepsis --no-deps")
    return Path(found.submodule_search_locations[0]) / "envs" / "assets"


def load() -> tuple[mh.MDP, np.ndarray]:
    """The MDP on admissible actions, and what is earned on arrival in each state, `(S,3)`."""
    directory = assets()
    with np.load(directory / "dynamics.npz") as file:
        moves, start, scores = file["tx_mat"], file["d_0"], file["sofa_scores"].ravel()
    lines = (directory / "admissible_actions.txt").read_text().splitlines()[1:]
    n_states, n_actions = moves.shape[:2]
    available = np.zeros((n_states, n_actions), dtype=bool)
    for state, line in enumerate(lines[:n_states]):
        available[state, [int(action) for action in line.split()]] = True
    death, survival, after = n_states - 3, n_states - 2, n_states - 1
    terminal = np.array([death, survival, after])
    available[terminal] = True
    moves = moves.astype(np.float64)
    moves[terminal] = 0.0
    names = [f"patients {i}" for i in range(n_states - 3)] + ["death", "survival", "after"]
    doses = [f"fluid {fluid}, vasopressor {press}" for fluid in range(5) for press in range(5)]
    mdp = mh.MDP(
        [sp.csr_array(moves[:, a]) for a in range(n_actions)],
        start,
        terminal,
        available,
        state_names=names,
        action_names=doses,
    )
    earned = np.zeros((n_states, 3))
    earned[death, 0] = earned[survival, 1] = 1.0
    living = min(len(scores), n_states - 3)
    earned[:living, 2] = scores[:living]
    return mdp, earned


def main(episodes: int = 5000, quick: bool = False) -> mh.Solution:
    """Run the example and return the solution; `quick` leaves out the intervals and what is printed."""
    mdp, earned = load()
    policies = [mh.soft_plan(mdp, earned @ WEIGHTS, gamma).policy for gamma in DISCOUNTS]
    exact = mh.identify(mh.Problem(mdp, policies, names=NAMES))
    assert np.abs(exact.discounts - DISCOUNTS).max() < 1e-6
    table = mh.Demonstrations.simulate(mdp, policies, episodes, seed=1, names=NAMES)
    problem = mh.Problem(mdp, table, arrival_features=earned, feature_names=FEATURES)
    begun = time.perf_counter()
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=1 if quick else 4))
    if quick:
        return solution
    print(mdp, "\nFrom the policies, with one reward per state:")
    print(exact.sentences())
    intervals = solution.confidence_intervals(0.95)
    print(
        f"From {episodes} episodes each, {len(table)} decisions ({time.perf_counter() - begun:.1f} s):"
    )
    print(solution)
    for name, (low, high) in zip(NAMES, intervals, strict=True):
        print(f"  {name}: 95% CI {low:.4f} to {high:.4f}")
    print(
        "  reward: "
        + ", ".join(f"{n} {w:.3f}" for n, w in zip(FEATURES, solution.reward, strict=True))
    )
    return solution


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Planning horizons in intensive care.")
    parser.add_argument("--episodes", type=int, default=5000)
    main(parser.parse_args().episodes)
