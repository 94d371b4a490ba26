"""What work will cost is said before it begins: memory and time; and work in blocks has the same digits."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_a_limit_of_the_process_counts() -> None:
    resource = pytest.importorskip("resource")
    taken = 1024 * int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + 300_000_000, before[1]))
    try:
        assert parallel.free_bytes() <= 300_000_000
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_experts_who_do_not_fit_into_memory_are_refused_in_a_sentence(problem) -> None:
    with (
        parallel.limited(memory=50_000.0),
        pytest.raises(ValueError, match=r"12 experts who are fitted together in 12 states .* a sample of at most \d+ of them"),
    ):
        mh.solve(problem, mh.MaximumLikelihood())


def test_work_that_takes_long_says_so_at_its_start_and_what_to_do_instead(problem) -> None:
    words = r"12 experts with \d+ numbers .* may take \d+ minutes or more .*: a sample of the experts"
    with parallel.limited(minutes=0.0), pytest.warns(UserWarning, match=words):
        mh.solve(problem, mh.MaximumLikelihood("shared", starts=1))


def test_people_who_share_nothing_are_taken_in_blocks() -> None:
    """The same digits, however many are taken together."""
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma, 1.0).policy for gamma in np.linspace(0.2, 0.9, 20)]
    problem = mh.Problem(CLIFF.mdp, mh.Demonstrations.simulate(CLIFF.mdp, policies, 20, seed=0))
    options = mh.MaximumLikelihood("per_expert", known_reward=CLIFF.reward)
    whole = mh.solve(problem, options)
    with parallel.limited(block=1):  # 16 people at a time
        blocks = mh.solve(problem, options)
        intervals = blocks.confidence_intervals()
    assert np.allclose(blocks.discounts, whole.discounts, atol=1e-9)
    assert np.allclose(intervals, whole.confidence_intervals(), atol=1e-9, equal_nan=True)
