"""A fit at known discounts against a plain nested fixed point, at equal likelihood.

    python benchmarks/known_discount.py [--full]

The peer is our own stand-in for packages of dynamic discrete choice: soft value iteration to 1e-10 inside, SciPy's L-BFGS-B with
differenced gradients outside. `MaximumLikelihood(discounts=…)` fits the same decisions through the public option, from its own
starts. Processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.optimize import minimize

import multihorizon as mh

DISCOUNT = 0.95


def task(side: int, features: int = 6) -> tuple[mh.Problem, np.ndarray]:
    rng = np.random.default_rng(0)
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    arrival = rng.normal(size=(mdp.n_states, features))
    policy = mh.soft_plan(mdp, arrival @ (rng.normal(size=features) / 3), DISCOUNT).policy
    table = mh.Demonstrations.simulate(mdp, [policy], 300, max_steps=100)
    return mh.Problem(mdp, table, arrival_features=arrival), mdp.stacked @ arrival


def nested_fixed_point(problem: mh.Problem, design: np.ndarray) -> float:
    """The log-likelihood that the stand-in reaches."""
    expert, mdp = problem.experts[0], problem.mdp
    assert expert.counts is not None
    counts = np.where(mdp.terminal[:, None], 0.0, expert.counts)

    def negative(theta: np.ndarray) -> float:
        expected = (design @ theta).reshape(mdp.n_actions, mdp.n_states).T
        values, residual = np.zeros(mdp.n_states), np.inf
        while residual > 1e-10:
            q = expected + DISCOUNT * mdp.expect(values)
            peak = q.max(axis=1)
            backed = np.where(mdp.terminal, 0.0, peak + np.log(np.exp(q - peak[:, None]).sum(axis=1)))
            residual, values = float(np.abs(backed - values).max()), backed
        q = expected + DISCOUNT * mdp.expect(values)
        peak = q.max(axis=1, keepdims=True)
        log = q - peak - np.log(np.exp(q - peak).sum(axis=1, keepdims=True))
        return -float((counts * log).sum())

    end = minimize(negative, np.zeros(design.shape[1]), method="L-BFGS-B", options={"maxiter": 500, "maxfun": 100_000})
    return -float(end.fun)


def compare(side: int) -> dict[str, object]:
    problem, design = task(side)
    begun = time.process_time()
    found = mh.solve(problem, mh.MaximumLikelihood(discounts=DISCOUNT, temperature=1.0))
    ours = time.process_time() - begun
    begun = time.process_time()
    reached = nested_fixed_point(problem, design)
    peer = time.process_time() - begun
    return {
        "states": problem.mdp.n_states,
        "fit, s": ours,
        "nested fixed point, s": peer,
        "times as fast": peer / ours,
        "log-likelihood": found.objective,
        "less that of the peer": found.objective - reached,
        "status": str(found.status),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="50 × 50 cells as well")
    compare(3)  # loads what is imported on first use
    for side in (10, 20, 50) if parser.parse_args().full else (10, 20):
        print(
            ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in compare(side).items()
            )
        )


if __name__ == "__main__":
    main()
