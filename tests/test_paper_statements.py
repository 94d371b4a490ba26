"""The paper's numbered statements that the library judges, each by a computation of its own."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.entropy.mce import Dual, minimise_dual
from multihorizon.planning.plan import causal_entropy, feature_counts

DOMAINS = pytest.mark.parametrize("domain", [mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff()], ids=lambda d: d.name)
WRONG = [0.8, 0.2, 0.6]


@DOMAINS
def test_corollary_1_the_constraints_of_eq_12_hold_at_every_discount(domain) -> None:
    """Each expert's feature counts are matched by a reward of the expert's own, and the optimum is the experts' own entropy."""
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    total = 0.0
    for expert, gamma in zip(problem.experts, WRONG, strict=False):
        alone = Dual(problem.with_experts([expert]), np.array([gamma]), np.ones(1))
        answer = minimise_dual(alone, tolerance=1e-8)
        assert np.abs(answer.point.gradient).max() < 1e-8
        assert answer.point.entropy == pytest.approx(causal_entropy(domain.mdp, expert.policy, gamma), rel=1e-6)
        total += answer.point.entropy
    wrong = WRONG[: problem.n_experts]
    assert mh.theory.rank_test(problem, wrong).augmented_rank > mh.theory.rank_test(problem, wrong).rank
    assert total > 0


@DOMAINS
def test_eq_12_taken_literally_rises_with_every_discount(domain) -> None:
    """So the supremum of Eq. 10 lies at discount 1, whatever the experts' own."""
    for policy in domain.soft_experts():
        entropies = [causal_entropy(domain.mdp, policy, gamma) for gamma in (0.0, 0.3, 0.6, 0.9, 0.99)]
        assert (np.diff(entropies) > 0).all()


def test_the_printed_reward_does_not_give_the_toy_experts_back() -> None:
    """The paper's MPMCE reward and discounts on the toy, and the expert with the shortest horizon at the first state."""
    domain = mh.domains.toy()
    reward, discounts = np.array([3.4, 4.2, 3.1, 9.7]), (0.53, 0.82, 0.98)
    experts = domain.soft_experts()
    assert experts[0][0] == pytest.approx([0.670, 0.259, 0.071], abs=1e-3)
    planned = [mh.soft_plan(domain.mdp, reward, gamma).policy for gamma in discounts]
    assert planned[0][0] == pytest.approx([0.377, 0.446, 0.177], abs=1e-3)
    off = []
    for policy, expert, gamma in zip(planned, experts, discounts, strict=True):
        counts = [feature_counts(domain.mdp, each, gamma, domain.mdp.stacked) for each in (policy, expert)]
        off.append(np.abs(counts[0] - counts[1]).max())
    assert off == pytest.approx([0.188, 0.204, 0.019], abs=2e-3)
    assert (reward[1] > reward[2]) != (domain.reward[1] > domain.reward[2])


ROOT = Path(__file__).parent.parent


@pytest.fixture
def paper_numbers(monkeypatch):
    """The script that checks quoted numbers against the paper's LaTeX."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("paper_numbers")
    sys.modules.pop("paper_numbers", None)


def test_the_index_links_to_headings_that_the_results_have_and_quotes_what_is_printed(paper_numbers) -> None:
    checks = dict(paper_numbers.pages({label: number for number, label in paper_numbers.EQUATIONS.items()}))
    assert sum("links to" in words for words in checks) > 10
    assert [words for words, holds in checks.items() if not holds] == []


def test_equations_are_counted_as_latex_counts_them(paper_numbers) -> None:
    text = r"""
    \begin{equation}\label{one} x = \begin{cases} 1 \\ 2 \end{cases} \end{equation}
    \begin{align*} y \\ z \end{align*}
    \begin{subequations}\label{two}\begin{align} a \label{two_a} \\ b \end{align}\end{subequations}
    \begin{align} c \nonumber \\ d \label{three} \\ e \label{four} \end{align}
    """
    assert paper_numbers.numbered(text) == {"one": 1, "two": 2, "two_a": 2, "three": 3, "four": 4}


def test_every_row_of_the_index_names_a_test_that_is_there() -> None:
    index = (ROOT / "docs" / "paper" / "index.md").read_text(encoding="utf-8")
    rows = [line for line in index.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)`", row.split("|")[-2])
        assert named, row
        assert all((ROOT / "tests" / name).exists() for name in named), row
