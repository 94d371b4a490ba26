"""How horizons are distributed where no shape is assumed: the most likely points, clear types, and what a task cannot show."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

import multihorizon as mh
from multihorizon.checks import Floats, Sparse
from multihorizon.horizon import Horizon
from multihorizon.numerics.mixture import fit_mixture
from multihorizon.parallel import Run
from multihorizon.population.findings import PopulationEvidence
from multihorizon.population.free import (
    Normals,
    describe_free,
    distribution_words,
    fit_free,
    flat_from,
    joined,
    share_interval,
)
from multihorizon.report.people import distribution_section
from multihorizon.report.plots import plot_distribution

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
    """The counts of people who decide so many times in each state, with log temperatures around −1."""
    rng = np.random.default_rng(seed)
    chance = np.exp(planner(np.stack([logits, -1 + 0.3 * rng.normal(size=logits.size)], axis=1)))[NOW.size :]
    later = rng.binomial(times, chance).T
    return sp.csr_array(np.concatenate([times - later, later], axis=1).astype(float))


def two_types(n: int, seed: int = 0) -> Floats:
    found: Floats = logit(np.random.default_rng(100 + seed).choice([0.2, 0.8], n, p=[0.3, 0.7]))
    return found


def normal(n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(200 + seed).normal(0.5, 0.8, n)


def described(counts: Sparse, **limits: int) -> dict:
    return describe_free(counts, planner, SAME_STATE, 1.0, CENTRE, -1e9, Run(), **limits)


def test_finer_nodes_add_little() -> None:
    counts = decisions(normal(300))
    found = fit_free(counts, planner, CENTRE, Run())
    assert found.mixture.converged
    assert found.settled
    x, y = np.linspace(*found.box[:, 0], 121), np.linspace(*found.box[:, 1], 61)
    everywhere = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    fine = fit_mixture(counts @ planner(everywhere))
    assert fine.log_likelihood - found.mixture.log_likelihood < 0.01 * np.sqrt(300)
    # and outside the box there is nothing to gain
    edges = np.stack(np.meshgrid(np.linspace(-8, 8, 33), np.linspace(-7, 5, 25), indexing="ij"), axis=-1).reshape(-1, 2)
    ratio = np.exp(counts @ planner(edges) - found.mixture.rows[:, None]).mean(axis=0)
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
    found = described(decisions(-1 + np.random.default_rng(5).exponential(1.2, 600)))
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


def test_with_very_many_persons_the_gap_is_still_that_of_all() -> None:
    counts = decisions(two_types(400))
    whole = described(counts)
    found = described(counts, most_persons=100, most_numbers=1000)  # rows are computed in blocks, and not kept
    assert found["refinement"]["persons"] == found["types_decided"]["persons"] == 100
    assert found["gap"] <= 1e-6 * 400
    assert whole["log_likelihood"] - 10 < found["log_likelihood"] <= whole["log_likelihood"] + 0.1
    assert len(found["types"]) == 2


def test_long_horizons_that_lead_to_the_same_choices_are_not_told_apart() -> None:
    from_here = flat_from(planner, SAME_STATE, 0.0)
    above = np.exp(planner(np.array([[x, 0.0] for x in (from_here, 12.0)])))
    below = np.exp(planner(np.array([[x, 0.0] for x in (from_here - 0.3, 12.0)])))
    assert np.abs(above[:, 0] - above[:, 1]).max() <= 0.05 < np.abs(below[:, 0] - below[:, 1]).max()
    far = described(decisions(np.full(150, 6.0)))["indistinguishable"]
    assert far["interval"][0] > 0.5
    assert far["interval"][0] <= far["share"] <= far["interval"][1] == 1
    near = described(decisions(np.full(150, -0.5)))["indistinguishable"]
    assert near["interval"][0] == 0
    assert near["interval"][1] < 0.05


def test_the_interval_of_a_share_ends_where_the_likelihood_has_fallen_by_192() -> None:
    rng, grid = np.random.default_rng(4), np.linspace(-3, 3, 25)
    log = -0.5 * ((np.where(rng.random(400) < 0.3, 1.5, -1.0) + rng.normal(size=400))[:, None] - grid) ** 2
    above = grid > 0.6
    share, low, high = share_interval(log, above, np.full(25, 1 / 25))
    best = fit_mixture(log).log_likelihood
    assert low < share < high
    for end in (low, high):
        # of all distributions with this share above, the most likely one, by another method

        def loss(x: Floats, end: float = end) -> float:
            weights = np.exp(x - x.max())
            weights = np.where(above, end * weights / weights[above].sum(), (1 - end) * weights / weights[~above].sum())
            return -float(np.log(np.exp(log) @ weights).sum())

        fallen = best + minimize(loss, np.zeros(25), method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 10**6}).fun
        assert fallen == pytest.approx(1.92, abs=0.15)


def test_nodes_that_cannot_be_planned_at_are_left_out() -> None:
    def partial_planner(eta: Floats) -> Floats:
        return np.where(eta[:, 1] < -2.9, -np.inf, planner(eta))

    counts = decisions(two_types(200))
    found = describe_free(counts, partial_planner, SAME_STATE, 1.0, CENTRE, -1e9, Run())
    assert len(found["types"]) == 2
    assert min(found["temperatures"]) >= np.exp(-2.9)
    with pytest.raises(ValueError, match="soft values must be finite"):
        describe_free(counts, lambda eta: np.full((4, len(eta)), -np.inf), SAME_STATE, 1.0, CENTRE, -1e9, Run())


TASK = mh.domains.space_adventure(24)
PEOPLE = TASK.persons(40, seed=2, discounts=np.repeat([0.15, 0.85], 20), temperatures=1.5)
PROBLEM = mh.Problem(TASK.mdp, PEOPLE.demonstrations)


@pytest.fixture(scope="module")
def solved() -> mh.Solution:
    return mh.solve(PROBLEM, mh.Population("~ group", PEOPLE.frame, known_reward=TASK.reward, distribution="free"))


def test_a_population_has_a_distribution_for_each_group(solved: mh.Solution, tmp_path) -> None:
    normal = mh.solve(PROBLEM, mh.Population("~ group", PEOPLE.frame, known_reward=TASK.reward))
    population = PopulationEvidence.of(solved).population
    assert population.distribution is not None
    assert list(population.distribution) == list(population.predictions) == ["group = control", "group = training"]
    assert sum(found["persons"] for found in population.distribution.values()) == 40
    assert sum(found["normal_log_likelihood"] for found in population.distribution.values()) == pytest.approx(solved.objective)
    for found in population.distribution.values():
        assert found["log_likelihood"] > found["normal_log_likelihood"]
        assert found["gap"] <= 1e-6 * found["persons"]
    # the rest is that of the normal population
    assert solved.objective == normal.objective
    np.testing.assert_array_equal(solved.discounts, normal.discounts)
    assert "distribution" not in normal.evidence["population"]
    assert "clear type" in solved.message
    solved.to_json(tmp_path / "solution.json")
    again = PopulationEvidence.of(mh.Solution.from_json(tmp_path / "solution.json")).population
    assert again.distribution == population.distribution


def test_the_distribution_is_drawn_and_told(solved: mh.Solution) -> None:
    population = PopulationEvidence.of(solved).population
    (section,) = distribution_section(population, Horizon(3))
    assert section.heading == "How horizons are distributed"
    assert len(section.blocks) == 6  # an opening, two pairs of figures, two tables, how it was done
    axes = plot_distribution(solved, "group = training")
    assert axes.get_title() == "group = training"
    with pytest.raises(ValueError, match="group must be one of group = control, group = training, got both"):
        plot_distribution(solved, "both")


def test_the_sentences_say_how_many_types_there_are_and_what_the_task_cannot_show() -> None:
    kind = {"share": 0.25, "discount": 0.5, "temperature": 1.0, "spread": 0.1, "at_most": False, "normals": 1}
    found = {
        "types": [kind, {**kind, "share": 0.75, "discount": 0.9}],
        "indistinguishable": {"interval": [0, 0.001]},
        "converged": True,
    }
    assert distribution_words({"everyone": found}, Horizon(3)) == [
        "There are 2 clear types of people: 25% look 1.8 steps ahead (discounts near 0.50) and 75% look 2.7 steps ahead "
        "(discounts near 0.90)."
    ]
    short = {**found, "types": [kind], "indistinguishable": {"interval": [0.123, 0.4], "discount": 0.93, "difference": 0.05}}
    first, second = distribution_words({"a": short, "b": found})[:2]
    assert first.startswith("There is one clear type of person (a)")
    assert second == (
        "12% to 40% of people (a) have a discount of 0.93 or more. How much further they look ahead this task cannot show: "
        "from there on no choice changes by more than 5 percentage points."
    )
    early = {**found, "converged": False, "gap": 0.5, "refinement": {"gain": 2.0}}
    assert "ended early: others are at most 0.5 more likely" in distribution_words({"everyone": early})[1]


@pytest.mark.slow
def test_a_reward_that_is_not_known_is_that_of_the_normal_population() -> None:
    problem = mh.Problem(TASK.mdp, PEOPLE.demonstrations, features=TASK.features)
    found = mh.solve(problem, mh.Population(distribution="free"))
    told = found.evidence["population"]["distribution"]["everyone"]
    assert told["log_likelihood"] > found.objective
    assert len(told["types"]) == 2


@pytest.mark.parametrize(
    ("formula", "distribution", "words"),
    [
        ("~ 1", "kinds", "distribution must be normal, free or types, got 'kinds'"),
        ("~ group + age", "free", "columns of groups only, got the numbers of age"),
        ("~ site", "free", "at most 6 combinations of groups, got 8"),
    ],
)
def test_what_cannot_be_free_is_refused(formula: str, distribution: str, words: str) -> None:
    frame = PEOPLE.frame.assign(site=[f"site {i % 8}" for i in range(40)])
    with pytest.raises(ValueError, match=words):
        mh.solve(PROBLEM, mh.Population(formula, frame, known_reward=TASK.reward, distribution=distribution))  # type: ignore[arg-type]
