"""What a stranger's solver gets, what is checked of it, and the public likelihood."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.horizon import Exponential

CLIFF = mh.domains.cliff()
TABLE = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 50, seed=0, names=["ann", "ben", "cleo"])
PROBLEM = mh.Problem(CLIFF.mdp, TABLE)


@dataclass(frozen=True)
class Guess:
    """A solver that returns what it is given."""

    answer: object = None

    def solve(self, problem, seed=0, progress=None):
        if self.answer is not None:
            return self.answer
        half, tenth = np.full(3, 0.5), np.full(3, 0.1)
        rest = {"temperature": np.ones(3), "standard_errors": tenth, "evidence": {"luck": 1}}
        return mh.Solution("Guess", mh.Status.CONVERGED, "a guess", problem.names, half, np.zeros(12), 0.0, 0.0, **rest)


def test_a_solution_of_your_own_has_summary_picture_page_file_and_intervals(tmp_path) -> None:
    solution = mh.solve(PROBLEM, Guess())
    assert solution.evidence["luck"] == 1
    np.testing.assert_allclose(solution.confidence_intervals(0.95), [[0.304, 0.696]] * 3, atol=1e-3)
    assert "95% CIs" in solution.summary()
    assert solution.plot().get_xlabel() == "discount"
    solution.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</svg>\n</body></html>\n")
    assert all(name in page for name in ("ann", "ben", "cleo", "a guess"))
    solution.to_json(tmp_path / "solution.json")
    again = mh.Solution.from_json(tmp_path / "solution.json")
    np.testing.assert_allclose(again.confidence_intervals(0.95), solution.confidence_intervals(0.95))


@pytest.mark.parametrize("answer", [{"discounts": [0.5]}, [0.5], 3], ids=["dict", "list", "number"])
def test_a_solver_that_returns_no_solution_is_told_so(answer) -> None:
    with pytest.raises(ValueError, match=rf"Guess\.solve must return a Solution, got {type(answer).__name__}$"):
        mh.solve(PROBLEM, Guess(answer))


def test_a_solver_that_takes_the_problem_alone_is_told_so() -> None:
    class Alone:
        def solve(self, problem):
            return None

    with pytest.raises(ValueError, match=r"Alone\.solve must take a problem, a seed and a progress function"):
        mh.solve(PROBLEM, Alone())


def test_a_solution_of_other_experts_is_refused() -> None:
    other = mh.solve(mh.Problem(CLIFF.mdp, CLIFF.soft_experts()), mh.ClosedForm())
    with pytest.raises(ValueError, match=r"Guess\.solve must return a Solution of the experts ann, ben, cleo"):
        mh.solve(PROBLEM, Guess(replace(other, problem=None)))


def test_analyse_says_which_solver_it_takes() -> None:
    with pytest.raises(ValueError, match=r"solver must be MaximumLikelihood\(…\), got Guess"):
        mh.analyse(TABLE, CLIFF.mdp, solver=Guess())


def test_the_protocols_are_public_and_say_what_fits() -> None:
    assert isinstance(Guess(), mh.Solver)
    assert isinstance(mh.Bayesian(), mh.Search)
    assert isinstance(mh.FreeWeights(), mh.Lookahead)
    assert not isinstance(mh.Grid(0.5), mh.Solver)


@dataclass(frozen=True)
class Squares:
    """Exponential look-ahead, written as a family of one's own: the coordinate is the root of the discount factor."""

    name: ClassVar[str] = "squares"

    def parameters(self, steps):
        return ("discount",)

    def tried(self, steps):
        return Exponential().tried(steps)

    def step_discounts(self, coordinates, steps):
        rho, slope = Exponential().step_discounts(coordinates**2, steps)
        return rho, slope * 2 * coordinates[None, :, :]

    def report(self, coordinates):
        return coordinates**2, 2 * coordinates[:, :, None] * np.eye(1)


def test_a_look_ahead_of_your_own_is_fitted_and_compared_as_the_others_are() -> None:
    rng = np.random.default_rng(0)
    moves = np.zeros((2, 16, 16))
    for left in range(1, 4):
        for action in range(2):
            for place in range(4):
                moves[action, left * 4 + place, (left - 1) * 4 : left * 4] = rng.dirichlet(np.full(4, 0.05))
    mdp = mh.MDP(moves, initial=np.append(np.zeros(12), np.full(4, 0.25)), terminal=range(4))
    reward = rng.normal(size=16) * 2
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.8)], 800, seed=1)
    problem = mh.Problem(mdp, table)
    known = dict(zip(mdp.state_names, reward.tolist(), strict=True))
    solver = {"known_reward": known, "temperature": "per_expert"}
    plain = mh.solve(problem, mh.MaximumLikelihood(**solver))
    mine = mh.solve(problem, mh.MaximumLikelihood(lookahead=Squares(), **solver))
    assert mine.evidence["lookahead"].family == "squares"
    np.testing.assert_allclose(mine.evidence["lookahead"].parameters["discount"], plain.discounts, atol=1e-3)
    rows = mh.compare_lookahead(problem, [mh.Exponential(), Squares()], solver=mh.MaximumLikelihood(**solver)).rows
    fitted = {row.family: row.log_likelihood for row in rows}
    assert set(fitted) == {"exponential", "squares", "free weights"}
    assert fitted["squares"] == pytest.approx(fitted["exponential"], abs=1e-4)


def test_the_likelihood_is_that_of_the_plans_and_its_gradient_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    reward, discounts, temperatures = rng.normal(size=12), np.array([0.2, 0.5, 0.8]), np.array([0.7, 1.0, 1.4])
    found = mh.log_likelihood(PROBLEM, reward, discounts, temperatures)
    direct = 0.0
    for expert, gamma, lam in zip(PROBLEM.experts, discounts, temperatures, strict=True):
        direct += float((expert.counts * mh.soft_plan(CLIFF.mdp, reward, gamma, lam).log_policy).sum())
    assert found.value == pytest.approx(direct, rel=1e-10)
    x, sizes = np.concatenate([reward, discounts, temperatures]), (12, 15)
    gradient = np.concatenate([found.reward, found.discounts, found.temperatures])
    for place in range(18):
        step = 1e-5 * (np.arange(18) == place)
        ends = [mh.log_likelihood(PROBLEM, *np.split(x + sign * step, sizes)).value for sign in (1, -1)]
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.zeros(3), 0.5), r"reward must have shape \(12,\)"),
        ((np.zeros(12), [0.5, 0.5]), "discounts must be one number or one for each of 3 experts"),
        ((np.zeros(12), 1.5), r"discounts must be in \[0, 1\], got 1.5"),
        ((np.zeros(12), 0.5, 0.0), "temperatures must be positive, got 0"),
    ],
)
def test_parameters_of_the_likelihood_are_checked(arguments, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        mh.log_likelihood(PROBLEM, *arguments)


def test_a_generator_will_do_as_a_seed_and_moves_on() -> None:
    problem = mh.Problem(CLIFF.mdp, CLIFF.soft_experts())
    rng = np.random.default_rng(7)
    seeds = [mh.solve(problem, mh.ClosedForm(), seed=rng).seed for _ in range(2)]
    assert seeds[0] != seeds[1]
    assert seeds[0] == mh.solve(problem, mh.ClosedForm(), seed=np.random.default_rng(7)).seed
