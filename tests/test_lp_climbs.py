"""The searches of MPLP: which order of horizons wins, which steps are taken, and what failing programs do."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from posing import acting_best

import multihorizon as mh
from multihorizon.numerics.lp import LPStatus, solve_lp
from multihorizon.programs import search as lp_search
from multihorizon.programs.inner import Inner, build_margins, program


def deterministic_cliff(side: int) -> mh.Problem:
    """Experts who differ in one or two states: four of the six orders explain them, and the best has steep sides."""
    domain = mh.domains.cliff(side, side, slip=0.0)
    plans = [mh.plan(domain.mdp, domain.reward, gamma) for gamma in (0.45, 0.55, 0.8)]
    return mh.Problem(domain.mdp, [plan.optimal_actions.argmax(axis=1) for plan in plans])


def searching(search: mh.SequentialLP, programs: type[Inner]) -> mh.SequentialLP:
    """The same search, with programs of this kind."""

    class Search(type(search)):
        def run(self, inner, *rest, **more):
            return super().run(programs(inner.margins, inner.objective, inner.l1, inner.bound), *rest, **more)

    return Search(**{field.name: getattr(search, field.name) for field in fields(search)})


@pytest.mark.slow
def test_one_start_finds_the_best_of_several_orders():
    problem = deterministic_cliff(8)
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.CONVERGED
    assert solution.evidence["order"] == [["0"], ["1"], ["2"]]
    inner = Inner(build_margins(problem), "worst", 0.0, 20.0)
    values = {}
    for gammas in np.sort(np.random.default_rng(0).uniform(size=(20, 3)), axis=1):
        for order in itertools.permutations(range(3)):
            values.setdefault(order, []).append(inner(gammas[list(order)]))
    assert sum(max(found) > 0 for found in values.values()) > 2
    assert max(map(max, values.values())) < solution.objective


def test_a_step_lets_no_discount_overtake():
    inner = Inner(build_margins(deterministic_cliff(6)), "worst", 0.0, 20.0)
    overtaken = 0
    for gamma in np.sort(np.random.default_rng(1).uniform(size=(10, 3)), axis=1):
        point = inner.at(gamma)
        for keep_order in (True, False):
            moving = {"values": point.values, "steps": (-gamma, 1 - gamma), "keep_order": keep_order}
            result = solve_lp(program(inner.layout, gamma, point.omega, l1=0.0, bound=20.0, **moving))
            ordered = (np.diff(gamma + result.values[inner.layout.columns.steps]) > 0).all()
            assert ordered or not keep_order
            overtaken += not ordered
    assert overtaken > 0


def test_starts_stay_in_the_order_that_won():
    inner = Inner(build_margins(deterministic_cliff(6)), "worst", 0.0, 20.0)
    found = mh.SequentialLP(starts=4).run(inner, 3)
    first, *others = found.evidence["starts"]
    later = found.trace.discounts[-sum(start["evaluations"] for start in others) :]
    assert (np.diff(later, axis=1) > 0).all()
    for start in others:
        assert start["objective"] == pytest.approx(first["objective"], rel=1e-6)


def test_an_ascent_with_all_rows_does_not_ask_which_rows_can_be_positive():
    problem, asked = deterministic_cliff(6), []

    class Asking(Inner):
        def omega(self, *arguments):
            asked.append(arguments)
            return super().omega(*arguments)

    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=searching(mh.SequentialLP(starts=2), Asking)))
    assert solution.evidence["omega_sizes"] == solution.evidence["rows"]
    assert not asked
    # There are such Γ close to the answer, where two experts are about to overtake each other.
    gamma = solution.discounts[[0, 0, 2]] + [0.0, 1e-9, 0.0]
    assert not Asking(build_margins(problem), "worst", 0.0, 20.0).at(gamma).has_reward
    assert asked


@pytest.mark.slow
def test_steps_ruled_out_by_a_few_rows_lead_no_higher(monkeypatch):
    problem = deterministic_cliff(6)
    solver = mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=3))
    plain = mh.solve(problem, solver)
    monkeypatch.setattr(lp_search, "MOST_SIMPLEX_ROWS", 0)
    checked = []

    def checking(inner, point, step):
        out = whole(inner, point, step)
        checked.append((out, inner.at(step.target).objective <= point.objective))
        return out

    whole = lp_search.ruled_out
    monkeypatch.setattr(lp_search, "ruled_out", checking)
    screened = mh.solve(problem, solver)
    found, useless = np.array(checked).T
    assert (found <= useless).all()
    assert found.sum() > 0.7 * useless.sum() > 0
    assert screened.objective == pytest.approx(plain.objective, rel=1e-8)
    np.testing.assert_allclose(screened.discounts, plain.discounts, atol=1e-4)
    assert len(screened.trace) < len(plain.trace)


def test_experts_who_act_alike_may_overtake():
    problem = deterministic_cliff(4)
    sets = problem.experts[0].require_sets()
    inner = Inner(build_margins(mh.Problem(problem.mdp, [sets, sets, problem.experts[2].require_sets()])), "worst", 0.0, 20.0)
    gamma = np.array([0.2, 0.4, 0.7])
    lp = program(inner.layout, gamma, inner.at(gamma).omega, l1=0.0, bound=20.0, keep_order=True)
    np.testing.assert_allclose(lp.row_lower[inner.layout.rows.order], [-np.inf, -0.45, -0.27])


def five_horizons(order) -> mh.Problem:
    """The five policies of big-small with a long corridor, each optimal in an interval of discounts."""
    domain = mh.domains.big_small(3, 10)
    policies = [interval.optimal_actions.argmax(axis=1) for interval in mh.discount_intervals(domain.mdp, domain.reward)]
    assert len(policies) == 5
    names = [f"expert {i}" if i not in order[:n] else f"twin of {i}" for n, i in enumerate(order)]
    return mh.Problem(domain.mdp, [policies[i] for i in order], names=names)


@pytest.mark.slow
def test_the_answer_for_five_experts_does_not_depend_on_their_order():
    """Several orders explain these experts, and most spread-out discounts explain none of them."""
    solution = mh.solve(five_horizons((2, 4, 3, 0, 1)), mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.CONVERGED
    assert solution.objective == pytest.approx(0.932463, rel=1e-5)
    assert solution.evidence["order"] == [[f"expert {i}"] for i in range(5)]
    found = dict(zip(solution.experts, solution.discounts, strict=True))
    # The top is flat: where the objective is known to nine digits, the discounts are known to four or five.
    np.testing.assert_allclose([found[f"expert {i}"] for i in range(5)], [0.58276, 0.74743, 0.89331, 0.96378, 1], atol=1e-4)


def seven_horizons() -> mh.Problem:
    """The policies of a random task that are optimal on a wide interval of discounts, from short horizons to long ones."""
    mdp = mh.domains.random_mdp(12, 4, branching=2, n_terminal=1, seed=0)
    intervals = mh.discount_intervals(mdp, np.random.default_rng(0).normal(size=12))
    wide = [interval.optimal_actions.argmax(axis=1) for interval in intervals if interval.high - interval.low > 1e-3]
    policies = dict.fromkeys(tuple(policy.tolist()) for policy in wide)
    assert len(policies) == 7
    return mh.Problem(mdp, [np.array(policy) for policy in policies])


@pytest.mark.slow
def test_the_order_of_seven_experts_is_found_however_they_are_listed():
    problem = seven_horizons()
    solver = mh.MPLP(reward_bound=10, search=mh.SequentialLP(starts=1))
    straight = mh.solve(problem, solver)
    assert straight.evidence["order"] == [[name] for name in problem.names]
    order = np.random.default_rng(4).permutation(7)
    shuffled = mh.solve(mh.Problem(problem.mdp, [problem.experts[k].sets for k in order]), solver)
    assert shuffled.objective == pytest.approx(straight.objective, rel=1e-9)
    np.testing.assert_allclose(shuffled.discounts, straight.discounts[order], atol=1e-9)


@pytest.mark.slow
def test_experts_who_act_alike_do_not_hide_the_order_of_five_others():
    problem = five_horizons((3, 1, 0, 3, 4, 2))
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.objective == pytest.approx(0.932463, rel=1e-5)


def test_a_search_whose_steps_all_fail_has_not_converged():
    class Failing(Inner):
        def solve(self, name, *arguments, **options):
            result = super().solve(name, *arguments, **options)
            return replace(result, status=LPStatus.FAILED) if "step" in name else result

    solution = mh.solve(
        acting_best(mh.domains.cliff()), mh.MPLP(reward_bound=20, search=searching(mh.SequentialLP(starts=3), Failing))
    )
    assert np.nanmax(solution.trace.values) < 2.59
    assert solution.status == mh.Status.NOT_CONVERGED
    assert not any(start["converged"] for start in solution.evidence["starts"])


def test_an_objective_that_cannot_be_computed_is_neither_a_number_nor_infeasible(monkeypatch):
    whole = Inner.solve  # the end of a search is computed anew, beyond what the search is handed
    monkeypatch.setattr(Inner, "solve", lambda *what, **how: replace(whole(*what, **how), status=LPStatus.FAILED))
    for search in (mh.SequentialLP(starts=2), mh.Grid(0.5, jobs=1)):
        solution = mh.solve(acting_best(mh.domains.toy()), mh.MPLP(search=search))
        assert np.isnan(solution.trace.values).all()
        assert np.isnan(solution.objective)
        assert solution.status == mh.Status.NOT_CONVERGED
        assert "HiGHS" in solution.message


def test_one_failing_program_does_not_stop_a_search():
    count = itertools.count()

    class Failing(Inner):
        def solve(self, name, *arguments, **options):
            result = super().solve(name, *arguments, **options)
            return replace(result, status=LPStatus.FAILED) if next(count) % 7 == 3 else result

    solution = mh.solve(
        acting_best(mh.domains.cliff()), mh.MPLP(reward_bound=20, search=searching(mh.SequentialLP(starts=3), Failing))
    )
    assert solution.objective == pytest.approx(2.593949, rel=1e-5)


def weaning() -> mh.Problem:
    """A patient on a ventilator: support 0 to 3, stamina 0 to 2; keep, reduce or extubate, which ends well or badly."""
    moves = np.zeros((3, 14, 14))
    for support, stamina in itertools.product(range(4), range(3)):
        here, share = 3 * support + stamina, 0.5 + 0.25 * stamina
        lower, works, well = 3 * max(support - 1, 0), 0.75 * share, (0.95, 0.7, 0.4, 0.15)[support] * share
        moves[0, here, here] += 0.5
        moves[0, here, 3 * support + min(stamina + 1, 2)] += 0.5
        moves[1, here, lower + max(stamina - 1, 0)] += works / 4
        moves[1, here, lower + stamina] += works * 3 / 4
        moves[1, here, here] += 1 - works
        moves[2, here, 12:] = well, 1 - well
    mdp = mh.MDP(moves, initial=np.append(np.full(12, 1 / 12), [0, 0]), terminal=[12, 13])
    reward = np.append(np.repeat([-0.2, -0.5, -0.8, -1.2], 3), [8.0, -6.0])
    return mh.Problem(mdp, [mh.plan(mdp, reward, gamma).optimal_actions.argmax(axis=1) for gamma in (0.3, 0.7, 0.98)])


def test_an_order_with_two_local_maxima_is_searched_from_more_than_one_place():
    """The best start in the true order leads to a lower top than the reversed order has; another one leads to the optimum."""
    searched = mh.solve(weaning(), mh.MPLP(reward_bound=8, certify=None))
    assert searched.objective == pytest.approx(0.242611, rel=1e-4)
    assert searched.discounts == pytest.approx([0.0, 0.928, 1.0], abs=1e-3)
    assert searched.status == "converged"
    proved = mh.solve(weaning(), mh.MPLP(reward_bound=8))
    assert proved.status == "optimal"
    assert proved.evidence["certificate"]["upper"] <= 1.001 * proved.objective


def test_a_user_can_hand_in_an_order_or_a_start():
    backwards = mh.solve(weaning(), mh.MPLP(reward_bound=8, search=mh.SequentialLP(order=["2", "1", "0"])))
    assert backwards.evidence["order"] == [["2"], ["1"], ["0"]]
    assert backwards.objective == pytest.approx(0.180815, rel=1e-4)
    near = mh.SequentialLP(starts=1, start=[0.0, 0.9, 0.99])
    started = mh.solve(weaning(), mh.MPLP(reward_bound=8, search=near))
    assert started.evidence["starts"][-1]["objective"] == pytest.approx(0.242611, rel=1e-4)
    for wrong, message in (({"order": ["0", "1"]}, "order must name each expert once"), ({"start": [0.1]}, "start must be one")):
        with pytest.raises(ValueError, match=message):
            mh.solve(weaning(), mh.MPLP(search=mh.SequentialLP(**wrong)))
    with pytest.raises(ValueError, match="certify must be left out"):
        mh.MPLP(search=mh.SequentialLP(order=["0", "1", "2"]), certify=0.1)


def test_what_no_second_ascent_confirms_has_not_converged():
    gridded = mh.solve(weaning(), mh.MPLP(reward_bound=8, search=mh.Grid(0.25)))
    assert gridded.status == "not converged"
    assert "nothing shows that it is the optimum" in gridded.message


def test_the_optimum_may_put_the_experts_in_the_wrong_order():
    """The smallest case: stay at a stall, or walk past a toll to a feast. Eq. 5 prefers a walker who likes the toll."""
    moves = np.zeros((2, 3, 3))
    moves[:, 0, 2] = moves[:, 1, 0] = moves[0, 2, 1] = moves[1, 2, 2] = 1.0
    mdp = mh.MDP(moves, state_names=["feast", "toll", "stall"], action_names=["walk", "stay"])
    low, high = mh.discount_intervals(mdp, [4.0, -1.0, 1.0])
    assert (low.high, high.low) == pytest.approx((2 / 3, 2 / 3))
    problem = mh.Problem(mdp, [low.optimal_actions.argmax(axis=1), high.optimal_actions.argmax(axis=1)], names=["near", "far"])
    solution = mh.solve(problem, mh.MPLP())
    assert solution.status == "optimal"
    assert solution.evidence["certificate"]["covers_all"]
    assert solution.objective == pytest.approx(2 / 3, rel=1e-3)
    assert solution.discounts == pytest.approx([1.0, 0.0], abs=1e-3)
    true = mh.solve(problem, mh.MPLP(search=mh.SequentialLP(order=["near", "far"])))
    assert true.objective == pytest.approx(2 / 5, rel=1e-3)
