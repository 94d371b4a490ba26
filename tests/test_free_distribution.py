"""How horizons are distributed where no shape is assumed: the most likely points, clear types, and what a task cannot show."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_expit, logit

from multihorizon.checks import Floats, Sparse
from multihorizon.estimate.population import free as module
from multihorizon.estimate.population.free import Normals, describe_free, fit_free, flat_from, joined
from multihorizon.numerics.mixture import fit_mixture

#: In each of these states one action earns now, and the other earns later.
NOW, LATER = np.linspace(0.2, 2.6, 12), np.full(12, 3.0)
SAME_STATE = sp.csr_array(np.kron(np.ones((2, 2)), np.eye(NOW.size)))
CENTRE = np.array([0.0, -1.0])


def planner(eta: Floats) -> Floats:
    """log π `(24,K)`: of the 12 states first the action that earns now, then the other."""
    better = (expit(eta[:, 0]) * LATER[:, None] - NOW[:, None]) / np.exp(eta[:, 1])
    found: Floats = np.concatenate([log_expit(-better), log_expit(better)])
    return found


def decisions(logits: Floats, times: int = 12, seed: int = 0) -> Sparse:
    """The counts of persons who decide so many times in each state, with log temperatures around −1."""
    rng = np.random.default_rng(seed)
    chance = np.exp(planner(np.stack([logits, -1 + 0.3 * rng.normal(size=logits.size)], axis=1)))[NOW.size :]
    later = rng.binomial(times, chance).T
    return sp.csr_array(np.concatenate([times - later, later], axis=1).astype(float))


def two_types(n: int, seed: int = 0) -> Floats:
    found: Floats = logit(np.random.default_rng(100 + seed).choice([0.2, 0.8], n, p=[0.3, 0.7]))
    return found


def normal(n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(200 + seed).normal(0.5, 0.8, n)


def described(counts: Sparse) -> dict:
    return describe_free(counts, planner, SAME_STATE, 1.0, CENTRE, -1e9)


def test_finer_nodes_add_little() -> None:
    counts = decisions(normal(300))
    found = fit_free(counts, planner, CENTRE)
    assert found.found.converged
    assert found.settled
    x, y = np.linspace(*found.box[:, 0], 121), np.linspace(*found.box[:, 1], 61)
    everywhere = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    fine = fit_mixture(counts @ planner(everywhere))
    assert fine.log_likelihood - found.found.log_likelihood < 0.01 * np.sqrt(300)
    # and outside the box there is nothing to gain
    edges = np.stack(np.meshgrid(np.linspace(-8, 8, 33), np.linspace(-7, 5, 25), indexing="ij"), axis=-1).reshape(-1, 2)
    ratio = np.exp(counts @ planner(edges) - found.found.rows[:, None]).mean(axis=0)
    assert 300 * np.log(ratio.max()) < 0.1 * np.sqrt(300)


def test_two_planted_types_are_found() -> None:
    found = described(decisions(two_types(300)))
    assert [round(kind["discount"], 1) for kind in found["types"]] == [0.2, 0.8]
    assert found["types"][0]["share"] == pytest.approx(0.3, abs=0.08)
    assert found["gap"] <= 1e-6 * 300
    assert found["converged"]
    assert sum(found["weights"]) == pytest.approx(1)
    assert found["discounts"] == sorted(found["discounts"])
    mass = np.array(found["weights"])[np.array(found["discounts"]) < 0.5].sum()
    assert mass == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("seed", range(3))
def test_one_normal_population_is_one_type(seed: int) -> None:
    found = described(decisions(normal(200, seed), seed=seed))
    assert len(found["types"]) == 1
    assert found["types"][0]["normals"] == 1
    assert found["types"][0]["spread"] == pytest.approx(0.8, abs=0.2)
    assert len(found["weights"]) > 3  # although the most likely distribution has several points


def test_a_leaning_population_is_one_type_that_is_not_normal() -> None:
    found = described(decisions(-1 + np.random.default_rng(5).exponential(1.2, 1500)))
    assert len(found["types"]) == 1
    assert found["types"][0]["normals"] > 1


def test_normal_distributions_are_one_type_without_a_valley_between_them() -> None:
    def of(*logits: float) -> Normals:
        means = np.array([(x, 0.0) for x in logits])
        return Normals(np.full(len(logits), 1 / len(logits)), means, np.stack([np.eye(2)] * len(logits)), 0.0)

    assert joined(of(0.0, 1.5)) == [[0, 1]]
    assert joined(of(0.0, 2.5)) == [[0, 1]]  # two peaks, but hardly a valley
    assert joined(of(5.0, 0.0)) == [[1], [0]]
    assert joined(of(0.0, 5.0, 1.0)) == [[0, 2], [1]]
    wide = Normals(np.array([0.5, 0.5]), np.zeros((2, 2)), np.stack([np.eye(2), 9 * np.eye(2)]), 0.0)
    assert joined(wide) == [[0, 1]]


def test_persons_may_come_in_any_order() -> None:
    counts, order = decisions(two_types(200)), np.random.default_rng(1).permutation(200)
    found, other = described(counts), described(counts[order])
    assert other["log_likelihood"] == pytest.approx(found["log_likelihood"], abs=0.02)
    assert [kind["discount"] for kind in other["types"]] == pytest.approx([kind["discount"] for kind in found["types"]], abs=1e-3)


def test_with_very_many_persons_the_gap_is_still_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = decisions(two_types(600))
    whole = described(counts)
    monkeypatch.setattr(module, "MOST_PERSONS", 150)
    monkeypatch.setattr(module, "MOST_NUMBERS", 1000)  # rows are computed in blocks, and not kept
    found = described(counts)
    assert found["refinement"]["persons"] == found["types_decided"]["persons"] == 150
    assert found["gap"] <= 1e-6 * 600
    assert whole["log_likelihood"] - 10 < found["log_likelihood"] <= whole["log_likelihood"] + 0.1
    assert len(found["types"]) == 2


def test_long_horizons_that_lead_to_the_same_choices_are_not_told_apart() -> None:
    from_here = flat_from(planner, SAME_STATE, 0.0)
    above = np.exp(planner(np.array([[x, 0.0] for x in (from_here, 12.0)])))
    below = np.exp(planner(np.array([[x, 0.0] for x in (from_here - 0.3, 12.0)])))
    assert np.abs(above[:, 0] - above[:, 1]).max() <= module.ALIKE < np.abs(below[:, 0] - below[:, 1]).max()
    far = described(decisions(np.full(150, 6.0)))["indistinguishable"]
    assert far["share"] > 0.9
    near = described(decisions(np.full(150, -0.5)))["indistinguishable"]
    assert near["share"] < 0.05
