import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.entropy.mce import EntropyEvidence
from multihorizon.exact.closed_form import ClosedFormEvidence
from multihorizon.files import for_json
from multihorizon.likelihood.estimates import LikelihoodEvidence, LookaheadEvidence, SieveEvidence
from multihorizon.parallel import silent
from multihorizon.population.findings import PopulationEvidence
from multihorizon.programs.solvers import ProgramEvidence
from multihorizon.solution import Deviations, Status, Trace

DOMAIN = mh.domains.cliff()
#: Solutions of the toy domain as version 0.2 wrote them, one for each kind of solver.
OLD = json.loads(Path(__file__).with_name("old_solutions.json").read_text(encoding="utf-8"))
EVIDENCE = {
    "programs": ProgramEvidence,
    "entropy": EntropyEvidence,
    "closed form": ClosedFormEvidence,
    "likelihood": LikelihoodEvidence,
    "look-ahead": LookaheadEvidence,
    "population": PopulationEvidence,
    "sieve": SieveEvidence,
}


@dataclass(frozen=True)
class Told:
    """A solver that is told the answer, to test what happens around solvers."""

    temperature: float | None = 1.0
    search: mh.Grid = field(default_factory=lambda: mh.Grid(0.5))

    def solve(self, problem, seed=0, progress=silent):
        return mh.Solution(
            solver="Told",
            status=mh.Status.OPTIMAL,
            message="It was told.",
            experts=problem.names,
            discounts=np.array(DOMAIN.soft_discounts if self.temperature else DOMAIN.hard_discounts),
            reward=DOMAIN.reward,
            objective=1.5,
            residual=0.0,
            temperature=np.full(3, self.temperature) if self.temperature else None,
            trace=Trace(np.zeros((2, 3)), np.array([0.0, 1.5]), np.array([0.1, 0.2])),
            evidence={"ranks": [1, 2], "array": np.arange(2)},
        )


def test_solve_records_options_seed_and_time() -> None:
    solution = mh.solve(mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts()), Told(), seed=7)
    assert solution.seed == 7
    assert solution.options == {"temperature": 1.0, "search": {"kind": "Grid", "step": 0.5, "jobs": 1}}
    assert solution.seconds > 0
    assert "Told: optimal. It was told." in str(solution)


def test_policies_are_those_of_the_answer() -> None:
    soft = mh.solve(mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts()), Told())
    for found, true in zip(soft.policies(), DOMAIN.soft_experts(), strict=True):
        np.testing.assert_allclose(found, true, atol=1e-12)
    hard = mh.solve(mh.Problem(DOMAIN.mdp, DOMAIN.hard_experts()), Told(temperature=None))
    for found, true in zip(hard.policies(), DOMAIN.hard_experts(), strict=True):
        np.testing.assert_array_equal(found.argmax(axis=1), true)


def test_json_round_trip(tmp_path) -> None:
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts(), names=["x", "y", "z"])
    solution = mh.solve(problem, Told())
    solution.to_json(tmp_path / "s.json")
    back = mh.Solution.from_json(tmp_path / "s.json", problem)
    np.testing.assert_array_equal(back.discounts, solution.discounts)
    np.testing.assert_array_equal(back.reward, solution.reward)
    np.testing.assert_array_equal(back.trace.best, solution.trace.best)
    assert (back.status, back.message, back.experts, back.options) == (
        "optimal",
        "It was told.",
        ("x", "y", "z"),
        solution.options,
    )
    assert back.evidence == {"ranks": [1, 2], "array": [0, 1]}
    np.testing.assert_allclose(back.policies()[1], solution.policies()[1])
    with pytest.raises(ValueError, match="read from a file"):
        mh.Solution.from_json(tmp_path / "s.json").policies()


def test_no_answer_is_null_in_the_file_and_no_policy(tmp_path) -> None:
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts())
    nothing = mh.Solution(
        "s", mh.Status.INFEASIBLE, "", problem.names, np.full(3, np.nan), np.full(12, np.nan), -np.inf, np.nan, problem=problem
    )
    nothing.to_json(tmp_path / "s.json")
    assert "NaN" not in (tmp_path / "s.json").read_text()
    assert "Infinity" not in (tmp_path / "s.json").read_text()
    back = mh.Solution.from_json(tmp_path / "s.json", problem)
    assert np.isnan(back.discounts).all()
    with pytest.raises(ValueError, match="no answer to plan with: its status is infeasible"):
        back.policies()


def test_infinite_and_unknown_numbers_survive_json(tmp_path) -> None:
    values = np.array([-np.inf, 1.5, np.inf, np.nan])
    trace = Trace(np.zeros((4, 3)), values, np.arange(4.0))
    saved = mh.Solution(
        "s", mh.Status.INFEASIBLE, "", ("a", "b", "c"), np.zeros(3), np.zeros(2), -np.inf, np.inf, trace=trace,
        evidence={"horizons": [np.inf, np.nan, 3.0]},
    )  # fmt: skip
    saved.to_json(tmp_path / "s.json")
    back = mh.Solution.from_json(tmp_path / "s.json")
    np.testing.assert_array_equal(back.trace.values, values)
    assert (back.objective, back.residual) == (-np.inf, np.inf)
    assert back.evidence == {"horizons": ["infinity", None, 3.0]}


def test_a_look_ahead_that_is_not_known_can_be_printed_after_it_was_saved(tmp_path) -> None:
    lookahead = {"family": "depth", "parameters": {"depth": [np.nan, 2.0]}, "weights": [[1.0, 1.0], [1.0, 1.0]]}
    plain = mh.Solution(
        solver="MaximumLikelihood",
        status=mh.Status.NOT_IDENTIFIED,
        message="",
        experts=("ann", "bo"),
        discounts=np.full(2, np.nan),
        reward=np.zeros(2),
        objective=0.0,
        residual=0.0,
        temperature=np.ones(2),
        evidence={"lookahead": lookahead},
    )
    plain.to_json(tmp_path / "solution.json")
    saved = mh.Solution.from_json(tmp_path / "solution.json")
    assert str(saved) == str(plain)
    assert saved.to_frame().equals(plain.to_frame())


@pytest.mark.parametrize("kind", OLD)
def test_a_file_of_the_version_before_is_read_and_its_evidence_keeps_its_names(kind, tmp_path) -> None:
    (tmp_path / "old.json").write_text(json.dumps(OLD[kind]))
    solution = mh.Solution.from_json(tmp_path / "old.json")
    assert type(solution.evidence) is EVIDENCE[kind]
    read = for_json(solution.evidence)
    assert {name: read[name] for name in OLD[kind]["evidence"]} == OLD[kind]["evidence"]
    assert solution.summary() == str(solution)
    assert solution.message.split(".")[0] in solution._repr_html_()
    assert not solution.evidence.other
    solution.to_json(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["evidence"] == OLD[kind]["evidence"]


def test_evidence_reads_as_fields_and_as_a_dict() -> None:
    solution = mh.solve(mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts()), mh.MCE(discount=0.4))
    evidence = solution.evidence
    assert evidence["entropy"] == evidence.get("entropy") == evidence.entropy
    assert "entropy_within_reach" not in evidence
    assert evidence["entropy_within_reach"] is None
    assert evidence.get("nothing of that name", 3) == 3
    assert {**evidence, "entropy": 0.0}["summed_gap"] == evidence.summed_gap
    with pytest.raises(KeyError, match="nothing"):
        evidence["nothing of that name"]
    with pytest.raises(ValueError, match="needs a solution with LikelihoodEvidence, got one of MCE"):
        LikelihoodEvidence.of(solution)


def test_a_solver_that_forgets_an_expert_is_caught() -> None:
    with pytest.raises(ValueError, match=r"discounts of the solution must have shape \(3,\), got \(2,\)"):
        mh.Solution("s", mh.Status.OPTIMAL, "", ("a", "b", "c"), np.zeros(2), np.zeros(4), 0.0, 0.0)


def test_the_answer_cannot_be_written_to() -> None:
    solution = mh.solve(mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts()), Told())
    for array in (solution.discounts, solution.reward, solution.temperature):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


def test_of_very_many_experts_a_solution_says_little_and_draws_how_they_are_distributed(tmp_path) -> None:
    many = mh.Solution(
        solver="own",
        status=Status.CONVERGED,
        message="Done.",
        experts=tuple(f"p{k}" for k in range(20_000)),
        discounts=np.linspace(0.0, 1.0, 20_000),
        reward=np.zeros(1),
        objective=0.0,
        residual=0.0,
    )
    assert many.sentences().splitlines()[1] == "Quartiles of discount: 0.2500, 0.5000, 0.7500."
    assert "… and 19,980 more rows; to_frame() has all 20,000" in many.summary()
    assert repr(many) == "Solution(own, converged, experts p0, p1, p2, p3, p4 and 19995 more)"
    assert len(many._repr_html_()) < 10_000
    assert len(many.to_frame()) == 20_000
    figure = many.plot().figure
    assert figure.get_size_inches()[1] == 2.4
    many.to_json(tmp_path / "many.json")
    assert mh.Solution.from_json(tmp_path / "many.json").experts == many.experts
    assert (tmp_path / "many.json").read_text().count("\n") < 100


def test_deviations_are_saved_and_make_personal_rewards(tmp_path) -> None:
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts())
    told = mh.solve(problem, Told())
    values = np.outer([0.5, 0.0, -0.5], np.arange(DOMAIN.reward.size))
    deviations = Deviations(
        spread=0.5,
        estimated=0.5,
        interval=np.array([0.2, np.inf]),
        p_shared=np.nan,
        share_of_range=np.array([0.1, 0.05, np.inf]),
        choices_moved=np.array([2.0, 1.0, 3.0]),
        values=values,
        errors=np.full_like(values, 0.1),
        if_shared={"discounts": told.discounts, "standard_errors": np.full(3, np.nan), "log_likelihood": -3.0},
        given=True,
    )
    blank = dict.fromkeys(("reward_standard_errors", "ridge_weights"), [0.0] * DOMAIN.reward.size)
    old = LikelihoodEvidence.read(OLD["likelihood"]["evidence"] | blank)
    assert old.deviations is None
    assert "deviations" not in old
    solution = replace(told, solver="MaximumLikelihood", evidence=replace(old, deviations=deviations))
    np.testing.assert_array_equal(told.personal_rewards, np.tile(DOMAIN.reward, (3, 1)))
    np.testing.assert_array_equal(solution.personal_rewards, DOMAIN.reward + values)
    alone = replace(told, reward=DOMAIN.reward + values[2])
    np.testing.assert_array_equal(solution.policies()[2], alone.policies()[2])
    np.testing.assert_array_equal(solution.policies()[1], told.policies()[1])
    solution.to_json(tmp_path / "s.json")
    again = mh.Solution.from_json(tmp_path / "s.json", problem=problem)
    assert for_json(again.evidence) == for_json(solution.evidence)
    np.testing.assert_array_equal(again.personal_rewards, solution.personal_rewards)
    with pytest.raises(ValueError, match="deviations of the solution"):
        replace(solution, evidence=replace(old, deviations=replace(deviations, values=values[:, 1:])))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groups", None),
        ("groups", ["everyone"]),
        ("predictions", {"everyone": 3}),
        ("predictions", {}),
        ("spread", {"discount": {"estimate": "much"}}),
        ("individuals", {"logit_discount": [0.0]}),
        ("reward_covariance", [[1.0, 0.0]]),
        ("discount_covariance", 5),
        ("covariates", {"age": 3}),
    ],
)
def test_an_edited_population_is_refused_when_it_is_read(name, value, tmp_path) -> None:
    content = json.loads(json.dumps(OLD["population"]))
    if name == "predictions" and not value:  # shapes are checked where there are numbers
        typical = next(iter(content["evidence"]["population"]["predictions"].values()))
        value = {"everyone": {**typical, "covariance": [[1.0, 0.0, 0.0]]}}
    content["evidence"]["population"][name] = value
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"s\.json is not a saved solution"):
        mh.Solution.from_json(tmp_path / "s.json")
