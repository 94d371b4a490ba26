"""Moves that take time: the same as waiting, exact recovery, likelihoods, and time stamps from tables to findings."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fitting import fit, one_sentence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import multihorizon as mh
from multihorizon.analysis import analyse
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import Likelihood
from multihorizon.choice.plans import LoggedMoves, redrawn
from multihorizon.choice.settings import Settings
from multihorizon.data.dynamics import observed_durations
from multihorizon.data.side_tables import read_transitions
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.mdp import time_left
from multihorizon.planning.plan import evaluate, feature_counts, occupancy
from multihorizon.problem import Expert

GAMMAS = (0.3, 0.6, 0.9)


def random_task(seed: int, states: int = 6, actions: int = 2, ends: bool = True, longest: int = 4) -> tuple[np.ndarray, ...]:
    """Transitions `(A,S,S)`, terminal states, and durations of moves, which are whole numbers."""
    rng = np.random.default_rng(seed)
    moves = np.zeros((actions, states, states))
    for a in range(actions):
        for s in range(states):
            moves[a, s, rng.choice(states, 3, replace=False)] = rng.dirichlet(np.ones(3))
    if ends:
        moves[:, -1] = 0.0
    return moves, np.array([states - 1] if ends else [], dtype=np.int64), rng.integers(1, longest + 1, moves.shape)


def with_waiting(moves: np.ndarray, terminal: np.ndarray, durations: np.ndarray) -> mh.MDP:
    """The same task where a move of τ units goes through τ − 1 states in which there is nothing to choose."""
    slow = [(a, s, t, int(durations[a, s, t])) for a, s, t in np.argwhere((moves > 0) & (durations > 1))]
    n = moves.shape[1]
    size = n + sum(time - 1 for *_, time in slow)
    long, available = np.zeros((len(moves), size, size)), np.ones((size, len(moves)), dtype=np.bool_)
    long[:, :n, :n] = np.where(durations == 1, moves, 0.0)
    available[n:, 1:] = False
    for a, s, t, time in slow:
        long[a, s, n] = moves[a, s, t]
        for left in range(time - 1, 0, -1):
            long[0, n, t if left == 1 else n + 1] = 1.0
            n += 1
    return mh.MDP(long, terminal=terminal, available=available)


def decided(mdp: mh.MDP, policies: list[np.ndarray], features: np.ndarray | None = None) -> mh.Problem:
    """Experts with about forty decisions in each state."""
    experts = [
        Expert(str(k), mdp, "demonstrations", counts=np.where(mdp.terminal[:, None], 0.0, np.round(40 * policy)))
        for k, policy in enumerate(policies)
    ]
    return mh.Problem(mdp, experts, arrival_features=features)


@given(st.integers(0, 1000), st.integers(4, 12), st.integers(1, 3), st.booleans(), st.floats(0, 0.97))
def test_durations_are_the_task_with_states_of_waiting(seed, states, actions, ends, discount) -> None:
    moves, terminal, times = random_task(seed, states, actions, ends)
    mdp, long = mh.MDP(moves, terminal=terminal, durations=times), with_waiting(moves, terminal, times)
    reward = np.random.default_rng(seed).normal(size=states)
    paid = np.append(reward, np.zeros(long.n_states - states))
    best, slow = mh.plan(mdp, reward, discount), mh.plan(long, paid, discount)
    np.testing.assert_allclose(best.values, slow.values[:states], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(best.optimal_actions, slow.optimal_actions[:states])
    soft, slow_soft = mh.soft_plan(mdp, reward, discount), mh.soft_plan(long, paid, discount)
    np.testing.assert_allclose(soft.policy, slow_soft.policy[:states], rtol=0, atol=1e-12)
    np.testing.assert_allclose(soft.values, slow_soft.values[:states], rtol=0, atol=1e-12)
    worth = evaluate(mdp, soft.policy, reward, discount, temperature=1.0)
    np.testing.assert_allclose(worth.values, soft.values, atol=1e-10)
    start = np.where(mdp.terminal, 0.0, 1.0) / (~mdp.terminal).sum()
    begun = long.starting(np.append(start, np.zeros(long.n_states - states)))
    own, slow_own = occupancy(mdp, soft.policy, discount), occupancy(begun, slow_soft.policy, discount)
    np.testing.assert_allclose(own.states, slow_own.states[:states], atol=1e-10)
    entered = feature_counts(mdp, soft.policy, discount), feature_counts(begun, slow_soft.policy, discount)
    np.testing.assert_allclose(entered[0], entered[1][:states], atol=1e-10)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.booleans())
def test_the_likelihood_is_that_of_the_task_with_waiting(seed, ends) -> None:
    moves, terminal, times = random_task(seed, ends=ends)
    mdp, long = mh.MDP(moves, terminal=terminal, durations=times), with_waiting(moves, terminal, times)
    n, rng = mdp.n_states, np.random.default_rng(seed)
    reward, waiting = rng.normal(size=n), np.zeros((long.n_states - n, n))
    problem = decided(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in GAMMAS])
    every = [np.vstack([expert.counts, np.zeros((len(waiting), 2))]) for expert in problem.experts]
    experts = [Expert(str(k), long, "demonstrations", counts=counts) for k, counts in enumerate(every)]
    slow = mh.Problem(long, experts, arrival_features=np.vstack([np.eye(n), waiting]))
    models = [Likelihood(each, Settings(temperatures=np.full(3, np.nan))) for each in (problem, slow)]
    x = np.concatenate([reward + 0.2 * rng.normal(size=n), GAMMAS, 0.1 * rng.normal(size=3)])
    points = [model.at(x) for model in models]
    assert points[0].value == pytest.approx(points[1].value, rel=1e-12)
    np.testing.assert_allclose(points[0].gradient, points[1].gradient, atol=1e-9 * np.abs(points[1].gradient).max())
    scale = np.abs(points[1].information).max()
    np.testing.assert_allclose(points[0].information, points[1].information, atol=1e-10 * scale)


def as_observed(mdp: mh.MDP, seed: int = 0) -> mh.MDP:
    """The same task, as if durations had been estimated from twenty to eighty times of each kind of move."""
    rng, lasting = np.random.default_rng(seed), mdp.durations
    kinds = lasting.entries.copy()
    if lasting.times.size == 7 * mdp.stacked.nnz:  # groups of three moves share their times
        kinds //= 3
        chosen = np.unique(kinds * 100.0 + lasting.times, return_index=True, return_inverse=True)
        lasting = replace(lasting, shares=lasting.shares[chosen[1]][chosen[2]])
    sizes = rng.integers(20, 80, mdp.stacked.nnz)[kinds] / 1.0
    sizes[kinds % 5 == 0] = np.inf  # some are known
    return mdp.lasting(replace(lasting, sizes=sizes, kinds=kinds))


KINDS = ["whole", "real", "random", "estimated", "timed", "both", "features", "decisions", "without cycles", "many states"]


@pytest.mark.parametrize(("kind", "deviations"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in KINDS[:-1])])
def test_derivatives_of_the_likelihood_are_exact(kind, deviations) -> None:
    moves, terminal, times = random_task(3, actions=3, states=140 if kind == "many states" else 6)
    rng = np.random.default_rng(0)
    if kind == "without cycles":  # states lead to later ones only
        moves = np.triu(moves + 0.2, 1)
        moves /= np.maximum(moves.sum(axis=2, keepdims=True), 1e-9)
    durations: object = times if kind == "whole" else rng.uniform(0.4, 3.0, times.shape)
    if kind in ("random", "timed", "both"):
        share = rng.uniform(0.2, 0.8, moves.shape)
        durations = {1: moves * share, 2.5: moves * (1 - share)}
    if kind == "timed":  # so many times that some give way together
        shares = rng.dirichlet(np.ones(7), moves.shape)
        durations = {1 + k / 2: moves * shares[..., k] for k in range(7)}
    sizes = rng.integers(20, 80, moves.shape[0] * moves.shape[1]) if kind in ("estimated", "both") else None
    mdp = mh.MDP(moves, terminal=terminal, durations=durations, sample_sizes=sizes)
    mdp = as_observed(mdp) if kind in ("timed", "both") else mdp
    policies = [mh.soft_plan(mdp, rng.normal(size=mdp.n_states), gamma).policy for gamma in GAMMAS]
    features = rng.normal(size=(mdp.n_states, 2)) if kind == "features" else None
    problem = decided(mdp, policies, features)
    if kind == "decisions":
        problem = mh.Problem(mdp, problem.experts, features=rng.normal(size=(3 * mdp.n_states, 2)))
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan), moves=True))
    model = NearlyShared.of(model, 0.3) if deviations else model
    x = np.concatenate(
        [rng.normal(size=model.n_reward), GAMMAS, 0.1 * rng.normal(size=3), 0.1 * rng.normal(size=model.n_transitions)]
    )
    point = model.at(x)
    for direction in (rng.normal(size=model.size), np.eye(model.size)[model.n_reward + 1]):
        step = 1e-5 * direction
        change = model.at(x + step).objective - model.at(x - step).objective
        # the gradient with deviations rests on differences itself
        assert change == pytest.approx(2 * point.gradient @ step, rel=1e-3 if deviations else 2e-5, abs=1e-9)
    if kind in ("timed", "both"):
        fitted = point.problem.mdp
        assert np.abs(fitted.durations.shares - mdp.durations.shares).max() > 0.01
        np.testing.assert_allclose(np.bincount(mdp.durations.entries, fitted.durations.shares), 1.0)
        np.testing.assert_allclose(
            model.moves[0].numbers(fitted), _levelled(x[model.transition_slice], model.moves[0]), atol=1e-9
        )
    if not deviations:
        direction = rng.normal(size=model.size)
        np.testing.assert_allclose(point.information @ direction, point.information_product(direction), rtol=1e-8, atol=1e-8)


def _levelled(t: np.ndarray, moves: LoggedMoves) -> np.ndarray:
    """The numbers without their common level in each row and each move, which changes no probability."""
    weights = moves.estimate * np.exp(t)
    return np.log(weights / np.bincount(moves.group, weights)[moves.group] / moves.estimate)


def test_the_fit_is_the_maximum_over_transitions_and_durations_too() -> None:
    """A likelihood written down anew, of decisions, next states and times, is maximised by another optimiser."""
    moves = np.array([[[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0, 0, 0]], [[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0, 0, 0]]])
    share = np.array([0.7, 0.3])[:, None, None] * np.ones_like(moves)
    sizes = np.full(6, 30.0)
    mdp = mh.MDP(moves, terminal=[2], durations={1: moves * share, 3: moves * (1 - share)}, sample_sizes=sizes)
    behind = 20.0 + 3 * mdp.durations.entries
    mdp = mdp.lasting(replace(mdp.durations, sizes=behind))
    paid = np.array([[0.8, -0.4], [-1.0, 1.5], [0.0, 0.0]])
    policies = [mh.soft_plan(mdp, paid, gamma).policy for gamma in (0.3, 0.8)]
    counts = [np.round(400 * policy) * [[1], [1], [0]] for policy in policies]
    problem = mh.Problem(mdp, [Expert(str(k), mdp, "demonstrations", counts=c) for k, c in enumerate(counts)])
    solver = mh.MaximumLikelihood(temperature=1.0, discounts={"0": 0.4}, known_reward=paid)
    solution = mh.solve(problem, solver)
    data, times, entries = mdp.stacked.data, mdp.durations.times, mdp.durations.entries
    row = np.repeat(np.arange(6), np.diff(mdp.stacked.indptr))

    # the first of each row, and of each move, sets the level
    freed = [np.flatnonzero(np.isin(np.arange(g.size), np.unique(g, return_index=True)[1], invert=True)) for g in (row, entries)]

    def chances(t: np.ndarray, free: np.ndarray, m: np.ndarray, groups: np.ndarray) -> np.ndarray:
        weights = m.copy()
        weights[free] *= np.exp(t)
        return weights / np.bincount(groups, weights)[groups]

    def parts(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = np.split(z[1:], [freed[0].size])
        return chances(t[0], freed[0], data, row), chances(t[1], freed[1], mdp.durations.shares, entries)

    def loss(z: np.ndarray) -> float:
        T, q = parts(z)
        total = float(sizes[row] * data @ np.log(T) + behind * mdp.durations.shares @ np.log(q))
        for gamma, n in zip((0.4, 1 / (1 + np.exp(-z[0]))), counts, strict=True):
            seen = sp.csr_array((T * np.bincount(entries, q * gamma ** (times - 1)), mdp.stacked.indices, mdp.stacked.indptr))
            G, values = seen.toarray().reshape(2, 3, 3)[:, :2, :2], np.zeros(2)
            for _ in range(40):
                Q = paid.T[:, :2] + gamma * G @ values
                values = np.log(np.exp(Q).sum(axis=0))
            total += float((n[:2].T * (Q - values)).sum())
        return -total

    best = minimize(loss, np.zeros(1 + freed[0].size + freed[1].size), method="L-BFGS-B", options={"ftol": 1e-13})
    assert solution.discounts[1] == pytest.approx(1 / (1 + np.exp(-best.x[0])), abs=2e-4)
    fitted, (T, q) = solution.problem.mdp, parts(best.x)
    np.testing.assert_allclose(fitted.stacked.data, T, atol=2e-4)
    np.testing.assert_allclose(fitted.durations.shares, q, atol=2e-4)
    assert np.abs(q - mdp.durations.shares).max() > 0.002
    held = mh.solve(problem.in_tasks(mh.MDP.as_known), solver)
    assert solution.standard_errors[1] > 1.05 * held.standard_errors[1]


def test_durations_of_one_unit_change_nothing() -> None:
    moves, terminal, _ = random_task(1)
    plain = mh.MDP(moves, terminal=terminal)
    for durations in (1, np.ones((6, 2)), np.ones(moves.shape), {1.0: moves}, [sp.csr_array(1.0 * (m > 0)) for m in moves]):
        mdp = mh.MDP(moves, terminal=terminal, durations=durations)
        assert mdp.durations is None
        assert mdp.at(0.5) is mdp
    table = mh.Demonstrations.simulate(plain, [mh.soft_plan(plain, np.arange(6.0), g).policy for g in GAMMAS], 30)
    assert table.times is None
    stamped = mh.Demonstrations.from_frame(table.to_frame(), time="step")  # steps as time stamps: every move takes one unit
    assert mh.estimate_mdp(stamped).durations is None
    solver = mh.MaximumLikelihood(1.0, known_reward={str(state): float(state) for state in range(6)})
    found = [mh.solve(mh.Problem(mh.estimate_mdp(each), each), solver) for each in (table, stamped)]
    np.testing.assert_array_equal(found[0].discounts, found[1].discounts)
    assert found[0].objective == found[1].objective


def test_all_forms_of_durations_mean_the_same() -> None:
    moves, terminal, times = random_task(4)
    by_move = mh.MDP(moves, terminal=terminal, durations=times)
    layers = {int(time): np.where(times == time, moves, 0.0) for time in np.unique(times)}
    others = [
        mh.MDP(moves, terminal=terminal, durations=layers),
        mh.MDP(moves, terminal=terminal, durations=[sp.csr_array(each) for each in times]),
        mh.MDP.from_sas(moves.transpose(1, 0, 2), terminal=terminal, durations=times.transpose(1, 0, 2)),
        mh.MDP.from_sas(
            moves.transpose(1, 0, 2), terminal=terminal, durations={t: part.transpose(1, 0, 2) for t, part in layers.items()}
        ),
    ]
    for other in others:
        np.testing.assert_allclose(other.at(0.7).to_array(), by_move.at(0.7).to_array(), atol=1e-15)
    by_decision = mh.MDP(moves, terminal=terminal, durations=times[:, :, 0].T)
    np.testing.assert_allclose(by_decision.at(0.7).to_array(), moves * 0.7 ** (times[:, :, :1] - 1.0))
    np.testing.assert_allclose(mh.MDP(moves, terminal=terminal, durations=2.5).at(0.7).to_array(), moves * 0.7**1.5)


def test_durations_go_where_the_task_goes(tmp_path) -> None:
    moves, terminal, _ = random_task(4)
    mdp = mh.MDP(moves, terminal=terminal, durations={1: moves * 0.25, 3: moves * 0.75}, sample_sizes=np.full(12, 50.0))
    mdp.to_npz(tmp_path / "task.npz")
    kept = [
        mh.MDP.from_npz(tmp_path / "task.npz"),
        read_transitions(tmp_path / "task.npz"),
        mdp.starting(np.eye(6)[0]),
        mdp.without(np.eye(6, 2, dtype=np.bool_)),
        mdp.with_probabilities(mdp.stacked.data).as_counted(),
        mdp.as_known(),
    ]
    for other in kept:
        np.testing.assert_array_equal(other.at(0.6).stacked.data, mdp.at(0.6).stacked.data)
    assert "with durations" in repr(kept[0])
    policies = [mh.soft_plan(mdp, np.arange(6.0), gamma).policy for gamma in GAMMAS]
    joined = mh.Problem.join(mh.Problem(mdp, policies), mh.Problem(mh.MDP(moves, terminal=terminal), policies))
    assert [expert.mdp.durations is None for expert in joined.experts] == [False] * 3 + [True] * 3


def test_durations_from_time_stamps_are_estimates_and_give_way(tmp_path) -> None:
    """Their error is in standard errors, whoever asks, and files keep what was fitted; durations that are given are known."""
    mdp, reward, table = stamped(episodes=30)
    observed = mdp.lasting(observed_durations(table, mdp))
    observed.to_npz(tmp_path / "task.npz")
    again = mh.MDP.from_npz(tmp_path / "task.npz")
    np.testing.assert_array_equal(again.durations.sizes, observed.durations.sizes)
    solver = mh.MaximumLikelihood("per_expert", known_reward=reward)
    estimated = mh.solve(mh.Problem(again, table), solver)
    given = mh.solve(mh.Problem(again.as_known(), table), solver)
    assert given.evidence["transition_widening"] == [1.0] * 3
    assert (np.array(estimated.evidence["transition_widening"]) > 1.01).all()
    fitted = estimated.problem.mdp
    assert np.abs(fitted.durations.shares - again.durations.shares).max() > 1e-3
    np.testing.assert_allclose(fitted.stacked.data, mdp.stacked.data)  # transitions were given
    estimated.to_json(tmp_path / "solution.json")
    read = mh.Solution.from_json(tmp_path / "solution.json", problem=mh.Problem(again, table))
    np.testing.assert_allclose(read.policies(), estimated.policies(), atol=1e-12)
    assert resume(read).objective == pytest.approx(resume(estimated).objective, abs=1e-8)


@pytest.mark.parametrize(("by", "shared"), [("action", True), ("decision", True), ("move", False), ("fixed", False)])
def test_moves_share_their_times_where_these_do_not_differ(by, shared) -> None:
    """What durations depend on is tested: by where moves lead, where they begin, and how they are chosen."""
    moves, _, lasting = random_task(11, states=6, actions=3, ends=False)
    rng = np.random.default_rng(2)
    share = rng.uniform(0.2, 0.8, {"action": (3, 1, 1), "decision": (3, 6, 1)}.get(by, (3, 6, 6)))
    mdp = mh.MDP(moves, durations=lasting if by == "fixed" else {1: moves * share, 3: moves * (1 - share)})
    policies = [mh.soft_plan(mdp, rng.normal(size=6), 0.5).policy] * 2
    table = mh.Demonstrations.simulate(mdp, policies, 100, max_steps=30, seed=1)
    seen = observed_durations(table, mdp)
    assert np.unique(seen.kinds).size == {"action": 3, "decision": 18}.get(by, mdp.stacked.nnz)
    drawn = redrawn(mdp.lasting(seen), rng).durations
    for kind in np.unique(seen.kinds):  # moves that share their times have the same, however they are drawn
        own = drawn.kinds == kind
        assert np.unique(np.stack([drawn.times[own], drawn.shares[own]]), axis=1).shape[1] == np.unique(drawn.times[own]).size
    if by == "fixed":
        entries = mdp.lasting(seen).durations.entries
        once = np.bincount(entries)[entries] == 1
        assert once.mean() > 0.9  # all that were seen
        np.testing.assert_array_equal(seen.times[once], mdp.durations.times[entries[once]])
    else:
        assert np.abs(mdp.lasting(seen).at(0.5).stacked.data - mdp.at(0.5).stacked.data).max() < (0.05 if shared else 0.1)


@pytest.mark.slow
def test_the_error_of_durations_widens_what_is_said_of_a_population() -> None:
    mdp, reward, table = stamped(episodes=30)
    errors = []
    observed = mdp.lasting(observed_durations(table, mdp))
    for task in (observed, observed.as_known()):
        population = mh.solve(mh.Problem(task, table), mh.Population(known_reward=reward, nodes=5)).evidence["population"]
        errors.append(population["discount"]["Intercept"]["standard_error"])
    assert errors[0] > errors[1]


@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["whole", "real", "random", "by state", "all alike"])
def test_exact_recovery_with_durations(ends, kind) -> None:
    moves, terminal, times = random_task(8, states=12, actions=3, ends=ends)
    rng = np.random.default_rng(1)
    durations = {
        "whole": times,
        "real": rng.uniform(0.4, 4.0, times.shape),
        "random": {1: 0.5 * moves, 2: 0.3 * moves, 4.5: 0.2 * moves},
        "by state": rng.integers(1, 4, (12, 1)) * np.ones((1, 3)),
        "all alike": 2.0,
    }[kind]
    mdp, reward = mh.MDP(moves, terminal=terminal, durations=durations), rng.normal(size=12)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in GAMMAS]
    found = mh.identify(mh.Problem(mdp, policies))
    assert found.status == "unique"
    assert found.dimension == 0
    np.testing.assert_allclose(found.discounts, GAMMAS, atol=1e-9)
    shift = (found.reward - reward).mean() if found.free_constant else 0.0
    np.testing.assert_allclose(found.reward - shift, reward, atol=1e-8)
    assert found.residual < 1e-9
    solved = mh.solve(mh.Problem(mdp, policies), mh.ClosedForm())
    assert solved.status == mh.Status.OPTIMAL
    for policy, fitted in zip(policies, solved.policies(), strict=True):
        np.testing.assert_allclose(fitted, policy, atol=1e-9)
    ignored = mh.identify(mh.Problem(mh.MDP(moves, terminal=terminal), policies))
    assert ignored.status == "infeasible"
    assert ignored.residual > 0.01


def test_the_time_of_an_episode_is_that_of_its_longest_way() -> None:
    moves = np.zeros((2, 4, 4))
    moves[0, 0, 1] = moves[0, 1, 3] = moves[0, 2, 3] = moves[1, 1, 2] = moves[1, 2, 3] = 1.0
    moves[1, 0, [1, 2]] = 0.5
    times = np.ones(moves.shape)
    times[1, 0, 2], times[0, 1, 3] = 5.0, 2.5
    left = time_left(mh.MDP(moves, terminal=[3], durations=times))
    np.testing.assert_allclose(left, [6.0, 2.5, 1.0, 0.0])
    assert time_left(mh.MDP(*random_task(0)[:1], terminal=[5], durations=2.0)) is None


def test_moves_of_less_than_one_unit_keep_discounts_above_nothing() -> None:
    moves, terminal, times = random_task(6, states=6, actions=3)
    mdp, reward = mh.MDP(moves, terminal=terminal, durations=0.3 * times), 2 * np.random.default_rng(0).normal(size=6)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.05, 0.4, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 150, seed=1)
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(starts=1))
    assert solution.status == mh.Status.CONVERGED
    assert solution.discounts.min() >= 0.001
    assert np.abs(solution.discounts - [0.05, 0.4, 0.8]).max() < 0.2
    mh.check_model(solution, table)  # its baseline in which nobody looks ahead has the smallest discount
    apart = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood("per_expert", known_reward=reward))
    assert np.abs(apart.discounts - [0.05, 0.4, 0.8]).max() < 0.1


def test_one_expert_alone_is_not_identified() -> None:
    moves, terminal, times = random_task(5, states=8, ends=False)
    mdp = mh.MDP(moves, terminal=terminal, durations=times)
    found = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, np.arange(8.0), 0.5).policy]))
    assert (found.status, found.dimension) == ("set", 1)
    low, high = found.intervals[0]
    assert low < 0.5 < high
    for member in found.members:
        again = mh.soft_plan(mdp, member.reward, member.discounts[0]).policy
        assert np.abs(again - mh.soft_plan(mdp, np.arange(8.0), 0.5).policy).max() < 1e-9


@pytest.mark.parametrize(
    ("durations", "said"),
    [
        (0, "positive numbers"),
        (-1.0, "positive numbers"),
        ([[1.0, 2.0]], "must be a number, have shape"),
        ("long", "durations must be numbers"),
        (np.nan, "must be finite"),
        ({}, "as a mapping must give parts"),
        ({0: np.zeros((2, 6, 6))}, "one positive number"),
        ({2: np.zeros((2, 5, 5))}, "as a mapping must give parts"),
        ({2: np.full((2, 6, 6), 0.5)}, "cannot happen"),
    ],
)
def test_malformed_durations_are_refused(durations, said) -> None:
    moves, terminal, _ = random_task(0)
    with pytest.raises(ValueError, match=said):
        mh.MDP(moves, terminal=terminal, durations=durations)


def test_parts_must_sum_to_the_transitions() -> None:
    moves, terminal, times = random_task(0)
    with pytest.raises(ValueError, match="must sum to the transitions"):
        mh.MDP(moves, terminal=terminal, durations={1: 0.5 * moves, 2: 0.4 * moves})
    with pytest.raises(ValueError, match="not negative"):
        mh.MDP(moves, terminal=terminal, durations={1: 1.5 * moves, 2: -0.5 * moves})
    short = mh.MDP(moves, terminal=terminal, durations=0.5 * times)
    with pytest.raises(ValueError, match="discount must be above 0"):
        mh.plan(short, np.arange(6.0), 0.0)


def test_what_does_not_take_durations_says_so() -> None:
    moves, terminal, times = random_task(2)
    mdp, reward = mh.MDP(moves, terminal=terminal, durations=times), np.arange(6.0)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in GAMMAS]
    best = mh.Problem(mdp, [mh.plan(mdp, reward, gamma).optimal_actions for gamma in GAMMAS])
    soft, counted = mh.Problem(mdp, policies), decided(mdp, policies)
    one_unit = "in which every move takes one unit of time"
    for problem, solver in (
        (best, mh.MPLP()),
        (best, mh.LPIRL(discount=0.5)),
        (best, mh.NaiveLP()),
        (soft, mh.MCE(discount=0.5)),
        (soft, mh.MPMCE()),
        (soft, mh.MPML()),
        (counted, mh.MaximumLikelihood(lookahead=mh.Hyperbolic())),
    ):
        with pytest.raises(ValueError, match=one_unit):
            mh.solve(problem, solver)
    with pytest.raises(ValueError, match=one_unit):
        mh.discount_intervals(mdp, reward)
    with pytest.raises(ValueError, match=one_unit):
        mh.identify(soft, within=0.1)
    with pytest.raises(ValueError, match=one_unit):
        mh.predict(mh.identify(soft), pay={"0": 1.0})


@cache
def stamped(seed: int = 0, episodes: int = 150) -> tuple[mh.MDP, np.ndarray, mh.Demonstrations]:
    """A task whose moves take random times, its reward, and the decisions of three experts with time stamps."""
    moves, terminal, _ = random_task(11, states=6, actions=3)
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.2, 0.8, moves.shape)
    mdp = mh.MDP(moves, terminal=terminal, durations={1: moves * share, 3: moves * (1 - share)})
    reward = 2 * rng.normal(size=6)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in GAMMAS]
    return mdp, reward, mh.Demonstrations.simulate(mdp, policies, episodes, seed=seed, names=["a near", "b middle", "c far"])


def test_simulated_moves_take_as_long_as_the_task_says() -> None:
    mdp, _, table = stamped(episodes=800)
    assert table.times is not None
    first = table.first_rows
    np.testing.assert_array_equal(table.times.begun[first], 0.0)
    np.testing.assert_array_equal(
        np.delete(table.times.begun, first), np.delete(table.times.over, np.append(first[1:], len(table)) - 1)
    )
    seen = observed_durations(table, mdp)
    lasting = mdp.lasting(seen)
    expected, observed = mdp.at(0.5).stacked.data / mdp.stacked.data, lasting.at(0.5).stacked.data / mdp.stacked.data
    assert np.abs(expected - observed).max() < 0.15
    assert np.abs(expected - observed).mean() < 0.03


def test_a_table_with_time_stamps_comes_back_from_files(tmp_path) -> None:
    _, _, table = stamped(episodes=10)
    table.to_csv(tmp_path / "log.csv")
    table.to_parquet(tmp_path / "log.parquet")
    for path in ("log.csv", "log.parquet"):
        again = mh.Demonstrations.from_files(tmp_path / path, time="time")
        np.testing.assert_array_equal(again.times.begun, table.times.begun)
        np.testing.assert_array_equal(again.times.over, table.times.over)
    some = again.select(again.expert == 1)
    np.testing.assert_array_equal(some.times.over, table.times.over[table.expert == 1])
    assert mh.Demonstrations.from_csv(tmp_path / "log.csv").times is None


def test_moves_nobody_timed_take_as_long_as_others_like_them() -> None:
    rows = [
        ("ann", 0, 0, "a", "go", "b", 0.0),
        ("ann", 0, 1, "b", "go", "end", 2.0),
        ("ann", 1, 0, "a", "go", "c", 0.0),
        ("ann", 1, 1, "c", "wait", "end", 4.0),
        ("ann", 2, 0, "a", "go", "c", 0.0),
        ("ann", 2, 1, "c", "wait", "end", 6.0),
    ]
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state", "time"])
    table = mh.Demonstrations.from_frame(frame, time="time")
    found = mh.estimate_mdp(table, smoothing=0)
    lasts = {}
    for row, column, time, share in zip(
        *(getattr(found.durations, n) for n in ("rows", "columns", "times", "shares")), strict=True
    ):
        key = found.state_names[row % 4], found.state_names[column]
        lasts.setdefault(key, {})[float(time)] = float(share)
    third = pytest.approx(1 / 3)
    assert lasts["a", "b"] == {2.0: 1.0}
    assert lasts["a", "c"] == {4.0: 0.5, 6.0: 0.5}
    assert lasts["b", "end"] == {2.0: third, 4.0: third, 6.0: third}  # others by the same action
    assert lasts["c", "end"] == {2.0: third, 4.0: third, 6.0: third}  # nobody timed this action: as all
    last = mh.Demonstrations.from_frame(frame.assign(next_time=[np.nan, 9.0] * 3), time="time")
    known = mh.estimate_mdp(last, smoothing=0).durations
    assert set(known.times.tolist()) == {2.0, 3.0, 4.0, 5.0, 6.0, 7.0}


def test_dates_are_counted_in_the_unit_that_is_asked_for() -> None:
    frame = pd.DataFrame(
        {
            "expert": "ann",
            "episode": 0,
            "step": [0, 1, 2],
            "state": ["a", "b", "c"],
            "action": "go",
            "next_state": ["b", "c", "end"],
            "when": ["2024-02-28T22:00Z", "2024-02-29T02:00+01:00", "2024-02-29T01:30:00+00:00"],
            "next_when": [None, None, "2024-03-01"],
        }
    )
    for column in (frame["when"], pd.to_datetime(frame["when"], utc=True, format="ISO8601")):
        table = mh.Demonstrations.from_frame(frame.assign(when=column), time="when", time_unit="hour")
        np.testing.assert_allclose(table.times.over - table.times.begun, [3.0, 0.5, 22.5])
        assert mh.estimate_mdp(table).durations.unit == "hour"


MALFORMED = {
    "no such column": (lambda f: f.drop(columns="time"), {}, "must have the column time with time stamps"),
    "a blank": (lambda f: f.assign(time=f["time"].where(f.index != 3)), {}, "column time must be a number, got"),
    "text": (
        lambda f: f.assign(time=f["time"].astype(object).where(f.index != 3, "noon")),
        {},
        "must be a number, got 'noon'",
    ),
    "infinite": (lambda f: f.assign(time=f["time"].where(f.index != 3, np.inf)), {}, "must be a number, got"),
    "dates without a unit": (
        lambda f: f.assign(time=pd.to_datetime(f["time"], unit="h")),
        {},
        "say in which unit to count with time_unit=",
    ),
    "numbers with a unit": (lambda f: f, {"time_unit": "hour"}, "must be dates where a unit of time is given"),
    "an unknown unit": (lambda f: f, {"time_unit": "moon"}, "the unit of time must be one of second, minute"),
    "backwards": (lambda f: f.assign(time=-f["time"]).drop(columns="next_time"), {}, "must be later than the time of this one"),
    "standing still": (lambda f: f.assign(time=0.0).drop(columns="next_time"), {}, "got a move that takes 0"),
    "ends before it began": (
        lambda f: f.assign(next_time=f["next_time"] - 100),
        {},
        "next_time must be the time of the next step",
    ),
    "a last one backwards": (
        lambda f: f.assign(next_time=f["next_time"].where(f["step"] != f.groupby("episode")["step"].transform("max"), -1.0)),
        {},
        "next_time must be later than the time of this one",
    ),
}


def test_the_end_of_a_move_may_differ_from_the_next_decision_by_rounding() -> None:
    frame = stamped(episodes=5)[2].to_frame()
    frame = frame.assign(time=frame["time"] * 0.1, next_time=frame["next_time"] / 10)
    assert np.isfinite(mh.Demonstrations.from_frame(frame, time="time").times.over).all()


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_time_stamps_get_one_sentence(name) -> None:
    damage, options, said = MALFORMED[name]
    frame = stamped(episodes=5)[2].to_frame()
    frame = damage(frame[frame["expert"] == "a near"].reset_index(drop=True))
    with pytest.raises(ValueError, match=said):
        mh.Demonstrations.from_frame(frame, time="time", **options)


def test_transitions_may_say_how_long_moves_take(tmp_path) -> None:
    frame = pd.DataFrame(
        {"state": ["a", "a"], "action": "go", "next_state": ["b", "c"], "probability": [0.5, 0.5], "duration": [1.0, 2.5]}
    )
    frame.to_csv(tmp_path / "moves.csv", index=False)
    for mdp in (mh.MDP.from_frame(frame), mh.MDP.from_csv(tmp_path / "moves.csv"), read_transitions(tmp_path / "moves.csv")):
        np.testing.assert_allclose(mdp.at(0.5).stacked.data, [0.5, 0.5 * 0.5**1.5])
    with pytest.raises(ValueError, match="column duration must be positive, got 0"):
        mh.MDP.from_frame(frame.assign(duration=0))


@pytest.mark.slow
def test_a_fit_and_its_questions_take_durations(golden) -> None:
    mdp, reward, table = stamped(episodes=200)
    given = mh.MDP(mdp.to_array(), terminal=mdp.terminal)
    with pytest.raises(ValueError, match="got both: leave out time="):
        analyse(table, [mdp])
    for mdps in (None, [given]):
        found = analyse(table, mdps, deviations=0.0)
        assert found.horizon.many == "units of time"
        low, high = found.intervals.T
        assert ((low < GAMMAS) & (np.array(GAMMAS) < high)).all()
        golden(found.answer, *found.remarks)
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(known_reward=reward))
    assert np.abs(solution.discounts - GAMMAS).max() < 0.1
    ignored = mh.solve(mh.Problem(given, table), mh.MaximumLikelihood())
    assert ignored.objective < mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood()).objective - 10


def test_a_population_takes_durations() -> None:
    mdp, reward, _ = stamped()
    gammas = np.linspace(0.3, 0.8, 12)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in gammas]
    table = mh.Demonstrations.simulate(mdp, policies, 40, seed=5)
    found = mh.solve(mh.Problem(mdp, table), mh.Population(known_reward=reward))
    assert found.status == mh.Status.CONVERGED
    assert np.corrcoef(found.discounts, gammas)[0, 1] > 0.8
    problem, options = mh.Problem(mdp, table), mh.MaximumLikelihood("per_expert", known_reward=reward)
    alone, few = mh.solve(problem, options), mh.solve(problem.some(np.arange(3)), options)
    np.testing.assert_allclose(alone.discounts[:3], few.discounts, atol=1e-4)


def test_the_answer_does_not_depend_on_names_and_order() -> None:
    _, _, table = stamped(episodes=60)
    frame = table.to_frame()
    renamed = frame.assign(
        state="s" + (7 - frame["state"].astype(int)).astype(str),
        next_state="s" + (7 - frame["next_state"].astype(int)).astype(str),
        expert=frame["expert"].map({"a near": "z", "b middle": "a", "c far": "m"}),
    )
    answers = []
    for each, names in ((frame, ["a near", "b middle", "c far"]), (renamed.sample(frac=1, random_state=0), ["z", "a", "m"])):
        read = mh.Demonstrations.from_frame(each, time="time")
        solution = mh.solve(mh.Problem(mh.estimate_mdp(read), read), mh.MaximumLikelihood(starts=1))
        answers.append([solution.discounts[solution.experts.index(name)] for name in names])
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-6)


@pytest.mark.slow
def test_fit_reads_time_stamps_from_the_command_line(tmp_path, golden) -> None:
    _, _, table = stamped(episodes=120)
    frame = table.to_frame()
    frame.to_csv(tmp_path / "log.csv", index=False)
    result = fit(tmp_path / "log.csv", "--time", "time", "--deviations", 0, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    golden(result.output)
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["options"]["time"] == "time"
    report = (tmp_path / "out" / "report.html").read_text()
    golden(report)
    dates = pd.to_datetime("2024-01-01") + pd.to_timedelta(frame["time"], unit="h")
    frame.assign(time=dates).drop(columns="next_time").to_csv(tmp_path / "dates.csv", index=False)
    result = fit(tmp_path / "dates.csv", "--time", "time", "--time-unit", "hour", "--quick", "--deviations", 0)
    golden(result.output)
    again = fit(tmp_path / "dates.csv", "--time", "time", "--time-unit", "week", "--quick", "--deviations", 0)
    assert again.stdout == result.stdout  # counted in the unit nearest to a typical move


def test_bad_time_stamps_on_the_command_line_get_one_sentence(tmp_path) -> None:
    frame = stamped(episodes=5)[2].to_frame()
    frame.to_csv(tmp_path / "log.csv", index=False)
    dates = pd.to_datetime("2024-01-01") + pd.to_timedelta(frame["time"], unit="h")
    frame.assign(time=dates).drop(columns="next_time").to_csv(tmp_path / "dates.csv", index=False)
    one_sentence(fit(tmp_path / "dates.csv", "--time", "time"), "say in which unit to count with --time-unit")
    one_sentence(fit(tmp_path / "log.csv", "--time", "when"), "must have the column when with time stamps")
    one_sentence(fit(tmp_path / "log.csv", "--time-unit", "hour"), "must come with a column of time stamps")
    one_sentence(fit(tmp_path / "log.csv", "--time", "time", "--state", "x"), "--state must come without --time")
    frame.assign(time=0).to_csv(tmp_path / "still.csv", index=False)
    still = fit(tmp_path / "still.csv", "--time", "time")
    one_sentence(still, "still.csv, line")
    assert "multihorizon check" not in still.output  # it does not look at time stamps


@cache
def both_tasks(seed: int = 4) -> tuple[mh.Solution, mh.Solution, mh.MDP, mh.MDP]:
    """The same decisions fitted in a task with durations, and in the one with states of waiting."""
    moves, terminal, times = random_task(seed, states=6, actions=3)
    mdp, long = mh.MDP(moves, terminal=terminal, durations=times), with_waiting(moves, terminal, times)
    reward, n = 1.5 * np.random.default_rng(seed).normal(size=6), long.n_states
    begin = np.append(mdp.initial, np.zeros(n - 6))
    long = long.starting(begin)
    problem = decided(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in GAMMAS])
    experts = [replace(expert, mdp=long, counts=np.vstack([expert.counts, np.zeros((n - 6, 3))])) for expert in problem.experts]
    slow = mh.Problem(long, experts, arrival_features=np.eye(n)[:, :6], feature_names=[str(i) for i in range(6)])
    solver = mh.MaximumLikelihood(1.0, starts=1, discounts=dict(zip("012", GAMMAS, strict=True)), ridge=0.1)
    return mh.solve(problem, solver), mh.solve(slow, solver), mdp, long


def test_what_follows_a_change_is_as_in_the_task_with_waiting() -> None:
    short, slow, mdp, long = both_tasks()
    np.testing.assert_allclose(short.reward, slow.reward, atol=1e-6)
    changes = [{"pay": {"2": 1.5}}, {"forbid": [("1", "0")]}, {"discount": 0.7}, {"pay": {("3", "1"): 2.0}}]
    changes += [{"transitions": True}]
    for change in changes:
        after = [
            mh.predict(solution, **(change if "transitions" not in change else {"transitions": task}), draws=40, seed=1)
            for solution, task in ((short, mdp.starting(np.eye(6)[0])), (slow, long.starting(np.eye(long.n_states)[0])))
        ]
        np.testing.assert_allclose(after[0].after, after[1].after[:, :6], atol=1e-6)
        np.testing.assert_allclose(after[0].before, after[1].before[:, :6], atol=1e-6)
        steps = [(each.outcomes["quantity"] == "steps to reach").any() for each in after]
        assert ["are decisions, whatever time" in each.sentences() for each in after] == [steps[0], False]
        frames = [each.outcomes.set_index(["expert", "quantity", "state"]) for each in after]
        for quantity in ("visits", "reward", "discounted reward", "bonus", "discounted bonus", "chance to reach"):
            own = frames[0][frames[0].index.get_level_values("quantity") == quantity]
            other = frames[1].reindex(own.index)
            np.testing.assert_allclose(own[["before", "after"]], other[["before", "after"]], atol=1e-5)


@pytest.mark.parametrize("wanted", [{"state": "2"}, {"state": "2", "action": "1"}])
def test_a_nudge_is_as_large_as_in_the_task_with_waiting(wanted) -> None:
    short, slow, _, _ = both_tasks()
    found = [mh.nudge(solution, **wanted, chance=0.8, draws=20, seed=1) for solution in (short, slow)]
    np.testing.assert_allclose(found[0].bonus, found[1].bonus, rtol=1e-4)
    there = np.isfinite(found[0].bonus)
    assert there.any()
    assert (found[0].low <= found[0].bonus)[there].all()
