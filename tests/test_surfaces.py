"""Tables of policies against exact plans, where they are hardest: low temperatures, discounts near 1, every kind of task."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

import multihorizon as mh
from multihorizon.choice.plans import Episodic, Large, Small
from multihorizon.choice.settings import Settings
from multihorizon.choice.surfaces import Tables
from multihorizon.choice.weighted import WeightedLikelihood
from multihorizon.horizon import Depth, Exponential, Hyperbolic, QuasiHyperbolic
from multihorizon.problem import CountedTask

#: No log-likelihood of a person may be off by more.
TOLERANCE = 1e-3


def decided(mdp: mh.MDP, reward: np.ndarray, gamma: np.ndarray, lam: np.ndarray, decisions: int, seed: int) -> sp.csr_array:
    """Counts `(n,A·S)` of people who decide so often, in states that are drawn at random."""
    rng, live = np.random.default_rng(seed), np.flatnonzero(mdp.live.any(axis=1))
    counts = np.zeros((gamma.size, mdp.n_actions, mdp.n_states))
    for i, (g, temperature) in enumerate(zip(gamma, lam, strict=True)):
        policy = mh.soft_plan(mdp, reward, float(g), float(temperature)).policy
        states, visits = np.unique(rng.choice(live, decisions), return_counts=True)
        counts[i, :, states] = rng.multinomial(visits, policy[states])
    return sp.csr_array(counts.reshape(gamma.size, -1))


def crowd_of(
    mdp: mh.MDP, reward: np.ndarray, gamma: np.ndarray, lam: np.ndarray, decisions: int = 100, seed: int = 0
) -> mh.Problem:
    """Such people with a reward `(S,A)` that is known."""
    counts = decided(mdp, reward, gamma, lam, decisions, seed)
    task = CountedTask(mdp, counts, sp.csr_array((counts.shape[1], 0)), known_reward=reward.T.ravel())
    return mh.Problem.of_tasks(tuple(f"person {i}" for i in range(gamma.size)), (), (task,))


def refined(tables: Tables, counts: sp.csr_array, eta: np.ndarray, rounds: int = 40) -> np.ndarray:
    """The log-likelihoods `(n,Q)` of people at places, after patches have been cut until nobody is off by too much."""
    assert tables.prepare(tables.patches.of(eta))
    for _ in range(rounds):
        found = tables.surface(counts, eta)
        wrong = np.abs(found.errors) > TOLERANCE
        if not wrong.any():
            return found.log_likelihoods
        sides = np.where(found.errors > 0, 0, 1)
        assert tables.cut(dict(zip(found.patches[wrong].tolist(), sides[wrong].tolist(), strict=True)))
        assert tables.prepare(tables.patches.of(eta))
    raise AssertionError("the tables were not refined")


def worst(crowd: mh.Problem, gamma: np.ndarray, lam: np.ndarray, largest: float, fresh: int = 200) -> float:
    """The largest true error at fresh places near the people, as far as a person may be there.

    Each person is asked about at 15 places, until these are right; then at places of which nobody has asked.
    """
    rng = np.random.default_rng(1)
    tables = Tables(crowd.tasks, largest, np.zeros(0), np.zeros(0, dtype=np.int64))
    counts = tables.counts(crowd.tasks)
    centre = np.stack([logit(gamma / largest), np.log(lam)], axis=1)
    near = np.array([(a, b) for a in (-0.8, -0.4, 0.0, 0.4, 0.8) for b in (-0.3, 0.0, 0.3)])
    refined(tables, counts, centre[:, None] + near)
    who = rng.integers(0, gamma.size, fresh)
    asked = centre[who] + rng.uniform(-1, 1, (fresh, 2)) * [0.8, 0.3]
    table = tables.surface(counts[who], asked[:, None]).log_likelihoods[:, 0]
    planned = tables.exact(asked)
    top = (counts[who] * tables.exact(centre[who]).T).sum(axis=1)
    exact = (counts[who] * planned.T).sum(axis=1)
    return float((np.abs(table - exact) * np.exp(np.minimum(exact - top, 0.0))).max())


def expected(mdp: mh.MDP, reward: np.ndarray) -> np.ndarray:
    """What decisions `(S,A)` are paid by a reward on arrival."""
    return (mdp.stacked @ reward).reshape(mdp.n_actions, mdp.n_states).T


def grid(side: int) -> tuple[mh.MDP, np.ndarray]:
    """A square of cells on which moves may slip, with one corner that ends it and rewards on the way; paid `(S,A)`."""
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side - 1, side - 1)])
    reward = np.random.default_rng(0).choice([-0.1, -0.3, 0.0], side**2)
    reward[-1] = 10.0
    return mdp, expected(mdp, reward)


def hardest(size: float, largest: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Discounts up to .9999 of the largest, and temperatures down to .05 of the reward's size."""
    rng = np.random.default_rng(seed)
    gamma = largest * np.concatenate([expit(rng.uniform(-2, 9, n - 3)), [0.5, 0.999, 0.9999]])
    return gamma, size * np.exp(rng.uniform(np.log(0.05), np.log(0.5), n))


@pytest.mark.parametrize("name", ["cliff", "toy", "endless cliff"])
def test_small_tasks_with_long_horizons_and_low_temperatures(name):
    d = mh.domains.toy() if name == "toy" else mh.domains.cliff(**({"ending": "absorbing"} if name != "cliff" else {}))
    largest = 0.9999 if d.mdp.never_ends().any() else 1.0
    gamma, lam = hardest(float(np.abs(d.reward).max()), largest, 25, 0)
    crowd = crowd_of(d.mdp, expected(d.mdp, d.reward), gamma, lam)
    assert isinstance(Tables(crowd.tasks, largest, np.zeros(0), np.zeros(0, dtype=np.int64)).planners[0].engine, Small)
    assert worst(crowd, gamma, lam, largest) < TOLERANCE


def test_tasks_that_end():
    task = mh.domains.space_adventure(40, seed=0)
    gamma, lam = hardest(float(np.abs(task.reward).max()), 1.0, 25, 1)
    crowd = crowd_of(task.mdp, task.reward, gamma, lam)
    assert isinstance(Tables(crowd.tasks, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64)).planners[0].engine, Episodic)
    assert worst(crowd, gamma, lam, 1.0) < TOLERANCE


@pytest.mark.slow
def test_large_tasks():
    mdp, reward = grid(20)
    rng = np.random.default_rng(2)
    gamma, lam = expit(rng.uniform(1.5, 2.5, 5)), np.exp(rng.uniform(-0.9, -0.4, 5))
    crowd = crowd_of(mdp, reward, gamma, lam, decisions=200)
    assert isinstance(Tables(crowd.tasks, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64)).planners[0].engine, Large)
    assert worst(crowd, gamma, lam, 1.0) < TOLERANCE


def log_likelihoods(crowd: mh.Problem, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all people at places η `(Q,2)`, from refined tables and from plans."""
    tables = Tables(crowd.tasks, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64))
    counts = tables.counts(crowd.tasks)
    places = np.broadcast_to(eta, (crowd.n_experts, *eta.shape)).copy()
    return refined(tables, counts, places), counts @ tables.exact(eta)


#: Places near which people of the next tests are.
PLACES = np.array([(1.0, 0.5), (1.5, 0.7), (1.9, 0.6), (1.4, 1.1), (0.8, 0.9)])


def two_tasks() -> mh.Problem:
    """Twelve people of the cliff, of whom the last eight, and two others, were seen in a cliff with other rewards."""
    d, rng = mh.domains.cliff(), np.random.default_rng(3)
    gamma, lam = expit(rng.normal(1.5, 0.3, 14)), np.exp(rng.normal(0.8, 0.2, 14))
    first = crowd_of(d.mdp, expected(d.mdp, d.reward), gamma[:12], lam[:12], 60, 1)
    second = crowd_of(d.mdp, expected(d.mdp, d.reward[::-1] / 2), gamma[4:], lam[4:], 60, 2)
    renamed = mh.Problem.of_tasks(tuple(f"person {i}" for i in range(4, 14)), (), second.tasks)
    return mh.Problem.join(first, renamed)


def test_persons_of_several_tasks():
    crowd = two_tasks()
    assert (crowd.n_experts, len(crowd.tasks)) == (14, 2)
    table, exact = log_likelihoods(crowd, PLACES)
    top = exact.max(axis=1, keepdims=True)
    assert (np.abs(table - exact) * np.exp(exact - top)).max() < TOLERANCE


def test_the_order_of_persons_states_and_actions_does_not_matter():
    d, rng = mh.domains.cliff(), np.random.default_rng(4)
    gamma, lam = expit(rng.normal(1.5, 0.3, 10)), np.exp(rng.normal(0.8, 0.2, 10))
    crowd = crowd_of(d.mdp, expected(d.mdp, d.reward), gamma, lam)
    states, actions, who = rng.permutation(d.mdp.n_states), rng.permutation(d.mdp.n_actions), rng.permutation(10)
    dense = d.mdp.stacked.toarray().reshape(d.mdp.n_actions, d.mdp.n_states, -1)[actions][:, states][:, :, states]
    moved = mh.MDP(dense, terminal=np.flatnonzero(d.mdp.terminal[states]), state_names=[f"z{s}" for s in states])
    cells = (actions[:, None] * d.mdp.n_states + states).ravel()
    task = crowd.tasks[0]
    paid = np.asarray(task.known_reward)[cells]
    other = CountedTask(moved, sp.csr_array(task.counts[who][:, cells]), task.features, known_reward=paid)
    there = mh.Problem.of_tasks(tuple(f"z{i}" for i in who), (), (other,))
    here, again = log_likelihoods(crowd, PLACES)[0], log_likelihoods(there, PLACES)[0]
    assert np.allclose(again, here[who], atol=1e-9, rtol=0)


def test_a_row_of_counts_does_not_depend_on_who_else_is_asked():
    crowd = two_tasks()
    tables = Tables(crowd.tasks, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64))
    counts = tables.counts(crowd.tasks)
    places = np.broadcast_to(PLACES, (14, 5, 2)).copy()
    everyone = refined(tables, counts, places)
    some = np.array([7, 2, 11])
    assert np.array_equal(tables.surface(counts[some], places[some]).log_likelihoods, everyone[some])


@pytest.mark.parametrize("family", [Hyperbolic(), Exponential()])
def test_look_ahead_that_is_not_a_discount(family):
    """Tables of weights against the likelihood of weights, at random places and in the free rewards' derivatives."""
    task, rng = mh.domains.space_adventure(10, seed=0), np.random.default_rng(5)
    table = task.persons(12, seed=0, group_difference=0.0, age_slope=0.0).demonstrations
    problem = mh.Problem(task.mdp, table, features=task.features)
    crowd, theta = problem, np.linspace(-20, 20, problem.n_parameters)
    tables = Tables(crowd.tasks, 1.0, theta, np.arange(theta.size), family)
    counts = tables.counts(crowd.tasks)
    eta = np.stack([rng.uniform(-2, 4, 12), rng.uniform(2, 4, 12)], axis=1)
    found = refined(tables, counts, eta[:, None])[:, 0]
    settings = Settings(temperatures=np.full(12, np.nan))
    model = WeightedLikelihood(problem, family, settings)
    point = model.at(np.concatenate([theta, expit(eta[:, 0]), eta[:, 1]]))
    assert np.abs(found - model.person_values(point)).max() < TOLERANCE
    surface = tables.surface(counts, eta[:, None])
    scores = tables.scores(counts, eta[:, None], surface, np.ones((12, 1)))[0][:, 0]
    exact = point.pull_back([batch.counts for batch in model.batches])[: theta.size]
    assert np.allclose(scores.sum(axis=0), exact, atol=1e-3 * np.abs(exact).max())
    if isinstance(family, Exponential):
        discounted = Tables(crowd.tasks, 1.0, theta, np.arange(theta.size))
        assert np.allclose(tables.exact(eta), discounted.exact(eta), atol=1e-10)


@pytest.mark.parametrize("family", [Depth(), QuasiHyperbolic()])
def test_tables_refuse_what_does_not_vary_smoothly_with_one_number(family):
    task = mh.domains.space_adventure(10, seed=0)
    crowd = crowd_of(task.mdp, task.reward, np.array([0.5]), np.array([20.0]))
    with pytest.raises(ValueError, match="tables need a look-ahead with one parameter that varies smoothly"):
        Tables(crowd.tasks, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64), family)
