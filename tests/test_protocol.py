"""Every solver through the same interface, on every problem whose answer is known."""

import numpy as np
import pytest

import multihorizon as mh

DOMAINS = {"toy": mh.domains.toy(), "big-small": mh.domains.big_small(), "cliff": mh.domains.cliff()}
COARSE = mh.Grid(0.5, jobs=1)
SOLVERS = {
    "LPIRL": (mh.LPIRL(discount=0.5), "one action"),
    "NaiveLP": (mh.NaiveLP(reward_bound=20.0, search=mh.SequentialLP(starts=2)), "actions"),
    "MPLP": (mh.MPLP(reward_bound=20.0, search=mh.SequentialLP(starts=2)), "actions"),
    "MPLP on sets": (mh.MPLP(reward_bound=20.0, search=mh.SequentialLP(starts=2)), "action sets"),
    "MCE": (mh.MCE(discount=0.4), "policies"),
    "MPML": (mh.MPML(search=COARSE), "policies"),
    "MPMCE": (mh.MPMCE(search=COARSE), "policies"),
    "MPMCE summed": (mh.MPMCE(gap="summed", search=COARSE), "policies"),
    "ClosedForm": (mh.ClosedForm(), "policies"),
    "ClosedForm, temperatures": (mh.ClosedForm(temperature="per_expert"), "policies"),
    "MaximumLikelihood": (mh.MaximumLikelihood(starts=2), "demonstrations"),
    "Population": (mh.Population(nodes=3), "demonstrations"),
    "SieveLikelihood": (mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, temperature="shared"), "steps"),
}
#: How each solver ends on all three domains. A grid this coarse misses the experts' discounts, and NaiveLP gives every expert the
#: same policy.
STATUS = {
    "LPIRL": mh.Status.OPTIMAL,
    "NaiveLP": mh.Status.INDISTINGUISHABLE,
    "MPLP": mh.Status.CONVERGED,
    "MPLP on sets": mh.Status.CONVERGED,
    "MCE": mh.Status.CONVERGED,
    "MPML": mh.Status.NOT_CONVERGED,
    "MPMCE": mh.Status.NOT_CONVERGED,
    "MPMCE summed": mh.Status.NOT_CONVERGED,
    "ClosedForm": mh.Status.OPTIMAL,
    "ClosedForm, temperatures": mh.Status.OPTIMAL,
    "MaximumLikelihood": mh.Status.CONVERGED,
    "Population": mh.Status.CONVERGED,
    "SieveLikelihood": mh.Status.CONVERGED,
}
#: The toy does not identify the discounts of soft-optimal experts.
NOT_IDENTIFIED_ON_TOY = ("ClosedForm", "ClosedForm, temperatures", "MaximumLikelihood", "Population", "SieveLikelihood")
#: Solvers whose answer does not depend on the order of the experts; `test_population.py` shows it of `Population`, and
#: `test_continuous.py` of `SieveLikelihood`.
SYMMETRIC = ("MPLP", "ClosedForm", "MaximumLikelihood")


def sampled(domain) -> mh.SampledProblem:
    """The domain's decisions as steps whose state is a category."""
    frame = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 400, seed=3).to_frame()
    ends = {name for name, end in zip(domain.mdp.state_names, domain.mdp.terminal, strict=True) if end}
    frame["terminated"] = frame.next_state.isin(ends).astype(int)
    named = frame.assign(state="s" + frame.state, next_state="s" + frame.next_state)
    return mh.SampledProblem(mh.Steps.from_frame(named, ["state"]))


def problem(domain, kind: str, order: tuple[int, ...] = (0, 1, 2)) -> mh.Problem:
    if kind == "steps":
        return sampled(domain)
    experts = {
        "one action": lambda: domain.hard_experts()[:1],
        "actions": lambda: [domain.hard_experts()[k] for k in order],
        "action sets": lambda: [domain.hard_action_sets()[k] for k in order],
        "policies": lambda: [domain.soft_experts()[k] for k in order],
        "demonstrations": lambda: mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 400, seed=3),
    }[kind]()
    if kind == "demonstrations":
        experts = [mh.Expert(f"{k}", domain.mdp, "demonstrations", counts=experts.counts(domain.mdp)[k]) for k in order]
    return mh.Problem(domain.mdp, experts, names=[f"expert {k}" for k in order[: len(experts)]])


#: Solvers that take seconds; two of the three domains run with the slow tests.
LONG = ("MPML", "MPMCE", "MPLP", "SieveLikelihood", "Population")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        pytest.param(label, name, marks=[pytest.mark.slow] if name != "toy" and label.startswith(LONG) else [])
        for label in SOLVERS
        for name in DOMAINS
    ],
)
def test_every_solver_gives_a_whole_solution(label: str, name: str, tmp_path) -> None:
    solver, kind = SOLVERS[label]
    case = problem(DOMAINS[name], kind)
    shares: list[float] = []
    solution = mh.solve(case, solver, seed=1, progress=lambda share, _: shares.append(share))
    unknown = name == "toy" and label in NOT_IDENTIFIED_ON_TOY
    proved = label.startswith("MPLP") and solution.status == mh.Status.OPTIMAL  # where the proof is cheap
    assert proved or solution.status == (mh.Status.NOT_IDENTIFIED if unknown else STATUS[label])
    assert solution.message
    assert solution.experts == case.names
    assert solution.reward.shape == (solution.problem.n_parameters,)
    assert np.isfinite(solution.reward).all()
    assert ((solution.discounts >= 0) & (solution.discounts <= 1)).all()
    assert np.isfinite(solution.objective)
    assert np.isfinite(solution.residual)
    assert all(0 <= share <= 1 for share in shares)
    assert shares == sorted(shares)
    solution.to_json(tmp_path / "s.json")
    back = mh.Solution.from_json(tmp_path / "s.json", case)
    np.testing.assert_array_equal(back.discounts, solution.discounts)
    np.testing.assert_array_equal(back.reward, solution.reward)
    assert back.options == solution.options
    again = mh.solve(case, solver, seed=1)
    np.testing.assert_array_equal(again.discounts, solution.discounts)
    np.testing.assert_array_equal(again.reward, solution.reward)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["big-small", "cliff"])
@pytest.mark.parametrize("label", SYMMETRIC)
def test_swapping_experts_swaps_discounts(label: str, name: str) -> None:
    solver, kind = SOLVERS[label]
    order = (2, 0, 1)
    straight = mh.solve(problem(DOMAINS[name], kind), solver)
    turned = mh.solve(problem(DOMAINS[name], kind, order), solver)
    np.testing.assert_allclose(turned.discounts, straight.discounts[list(order)], atol=1e-4)


@pytest.mark.parametrize("name", ["big-small", "cliff"])
@pytest.mark.parametrize("label", ["ClosedForm", "ClosedForm, temperatures"])
def test_exact_solvers_find_the_truth(label: str, name: str) -> None:
    domain = DOMAINS[name]
    solver, kind = SOLVERS[label]
    solution = mh.solve(problem(domain, kind), solver)
    np.testing.assert_allclose(solution.discounts, domain.soft_discounts, atol=1e-9)
    np.testing.assert_allclose(solution.reward, domain.reward, atol=1e-8)
    for found, expert in zip(solution.policies(), domain.soft_experts(), strict=True):
        np.testing.assert_allclose(found, expert, atol=1e-10)
