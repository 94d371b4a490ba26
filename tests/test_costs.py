"""What work will cost is said before it begins: memory and time; and work in blocks has the same digits."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon import parallel

CLIFF = mh.domains.cliff()


@pytest.fixture(scope="module")
def problem() -> mh.Problem:
    gammas = np.linspace(0.2, 0.9, 12)
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma, 1.0).policy for gamma in gammas]
    return mh.Problem(CLIFF.mdp, mh.Demonstrations.simulate(CLIFF.mdp, policies, 20, seed=0))


def test_some_memory_is_free() -> None:
    assert parallel.free_bytes() > 1e6


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (300_000_000, 300_000_000))
    assert parallel.free_bytes() <= 300_000_000


def test_experts_who_do_not_fit_into_memory_are_refused_in_a_sentence(problem, monkeypatch) -> None:
    monkeypatch.setattr(parallel, "free_bytes", lambda: 50_000.0)
    monkeypatch.setattr("multihorizon.likelihood.maximum_likelihood.free_bytes", lambda: 50_000.0)
    with pytest.raises(ValueError, match=r"12 experts who are fitted together in 12 states .* a sample of at most \d+ of them"):
        mh.solve(problem, mh.MaximumLikelihood())


def test_work_that_takes_long_says_so_at_its_start_and_what_to_do_instead(problem, monkeypatch) -> None:
    clock = SimpleNamespace(process_time=itertools.count(step=0.5).__next__)
    monkeypatch.setattr("multihorizon.likelihood.maximum_likelihood.time", clock)
    with pytest.warns(
        UserWarning, match=r"12 experts with \d+ numbers .* may take 83 minutes or more .*: a sample of the experts"
    ):
        mh.solve(problem, mh.MaximumLikelihood("shared", starts=1))


def test_people_who_share_nothing_are_taken_in_blocks(problem, monkeypatch) -> None:
    """The same digits, however many are taken together."""
    options = mh.MaximumLikelihood("per_expert", known_reward=CLIFF.reward)
    whole = mh.solve(problem, options)
    monkeypatch.setattr("multihorizon.likelihood.separate.persons_together", lambda tables: 5)
    blocks = mh.solve(problem, options)
    assert np.allclose(blocks.discounts, whole.discounts, atol=1e-9)
    assert np.allclose(blocks.confidence_intervals(), whole.confidence_intervals(), atol=1e-9, equal_nan=True)
