"""Populations: gradients, integrals and information against independent ones, effects against simulated truth, bad input."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f_oneway, t

import multihorizon as mh
from multihorizon.choice.settings import with_known_reward
from multihorizon.parallel import Run
from multihorizon.population.covariates import read_covariates
from multihorizon.population.marginal import Marginal, PsiLayout, Start, modes
from multihorizon.population.maximum import covariance_at_spread, likely_spreads, maximise, spread_moves
from multihorizon.population.solver import effect_profile

TASK = mh.domains.space_adventure(mini_blocks=24)
PEOPLE = TASK.persons(24, seed=3, group_difference=0.0)
POINTS = TASK.reward.T.ravel()


def known_problem(people=PEOPLE) -> mh.Problem:
    return mh.Problem(TASK.mdp, people.demonstrations)


def free_problem(people=PEOPLE) -> mh.Problem:
    return mh.Problem(TASK.mdp, people.demonstrations, features=TASK.features, feature_names=TASK.feature_names)


def layout_of(free: bool, people=PEOPLE) -> tuple[PsiLayout, np.ndarray]:
    """The layout of a study with a covariate, and a ψ that is not its maximum."""
    problem = free_problem(people) if free else known_problem(people)
    crowd, reward = with_known_reward(problem, None if free else POINTS)
    theta = np.array([-3.0, -1.5, 1.4, 3.2, -0.5]) if free else np.zeros(0)
    layout = PsiLayout(crowd, read_covariates("~ age", people.frame, crowd).matrix, reward, np.zeros(theta.size))
    psi = layout.pack(theta, np.array([1.5, 0.0 if free else 1.7]), np.array([0.8, 0.4]))
    psi[layout.spread.start + 1] = 0.2
    return layout, psi + 0.03 * np.random.default_rng(0).normal(size=psi.size) * (np.abs(psi) > 0)


def nodes_at(layout: PsiLayout, psi: np.ndarray, per_dimension: int = 9) -> Marginal:
    return Marginal(layout, modes(layout, psi), per_dimension)


@pytest.fixture(scope="module")
def solution() -> mh.Solution:
    shares: list[float] = []
    solver = mh.Population("~ group + age", PEOPLE.frame, known_reward=POINTS, nodes=7)
    found = mh.solve(known_problem(), solver, progress=lambda share, _: shares.append(share))
    assert shares == sorted(shares)
    return found


@pytest.mark.parametrize("free", [False, True], ids=["known reward", "free reward"])
def test_the_gradient_is_that_of_the_objective(free: bool) -> None:
    layout, psi = layout_of(free)
    marginal = nodes_at(layout, psi, 5)
    slopes = []
    for h in 1e-5 * np.eye(psi.size):
        slopes.append((marginal.at(psi + h).objective - marginal.at(psi - h).objective) / 2e-5)
    np.testing.assert_allclose(marginal.at(psi).gradient, slopes, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_integral_is_that_of_a_fine_grid() -> None:
    layout, psi = layout_of(free=False)
    parts = layout.unpack(psi)
    means = layout.design @ parts.effects
    step, offset = 0.5, nodes_at(layout, psi, 11).at(psi).persons
    grid = np.arange(-5, 5 + step, step)
    total = np.zeros(len(means))
    for z in np.array([(a, b) for a in grid for b in grid]):
        places = means + parts.root @ z
        plans = [
            mh.soft_plan(TASK.mdp, TASK.reward, *pair).policy
            for pair in zip(1 / (1 + np.exp(-places[:, 0])), np.exp(places[:, 1]), strict=True)
        ]
        value = np.array([(e.counts * np.log(p)).sum() for e, p in zip(known_problem().experts, plans, strict=True)])
        total += np.exp(value - offset - 0.5 * z @ z) * step**2 / (2 * np.pi)
    assert np.abs(np.log(total)).max() < 0.005


@pytest.mark.slow
def test_the_information_is_the_curvature_of_the_marginal_likelihood() -> None:
    layout, psi = layout_of(free=True)
    found = maximise(layout, Start.at(layout, psi), 7, Run())
    assert found.finished
    ends = [[found.marginal.at(found.psi + sign * h).gradient for sign in (1, -1)] for h in 1e-4 * np.eye(psi.size)]
    slopes = np.array([(ahead - behind) / 2e-4 for ahead, behind in ends])
    errors = np.sqrt(np.diag(np.linalg.inv(found.value.information)))
    np.testing.assert_allclose(errors, np.sqrt(np.diag(np.linalg.inv(-slopes))), rtol=0.1)


def test_the_truth_is_within_three_standard_errors(solution: mh.Solution) -> None:
    found = solution.evidence["population"]
    assert solution.status == mh.Status.CONVERGED
    truth = {"Intercept": 1.8, "group[T.training]": 0.0, "age": 0.0}
    for term, value in truth.items():
        assert abs(found["discount"][term]["estimate"] - value) < 3 * found["discount"][term]["standard_error"]
    for kind, value in {"discount": 0.8, "temperature": 0.3}.items():
        low, high = found["spread"][kind]["interval"]
        assert low < value < high


def test_shrunken_discounts_are_nearer_to_the_truth_than_the_most_likely(solution: mh.Solution) -> None:
    alone = mh.solve(known_problem(), mh.MaximumLikelihood(temperature="per_expert", known_reward=POINTS))
    errors = [np.sqrt(np.mean((s.discounts - PEOPLE.discounts) ** 2)) for s in (alone, solution)]
    assert errors[1] < 0.75 * errors[0]


@pytest.mark.slow
def test_a_free_reward_is_recovered_up_to_scale() -> None:
    found = mh.solve(free_problem(), mh.Population("~ group", PEOPLE.frame, nodes=5))
    assert found.status == mh.Status.CONVERGED
    assert np.corrcoef(found.reward, [-20.0, -10.0, 10.0, 20.0, -3.0])[0, 1] > 0.98
    scale = found.evidence["population"]["temperature"]["Intercept"]
    assert np.isnan(scale["interval"]).all()
    assert np.isnan(scale["p"])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, 120])
def test_discounts_that_nobody_can_know_are_not_identified_however_far_the_search_came(steps: int) -> None:
    toy = mh.domains.toy()
    logged = mh.Demonstrations.simulate(toy.mdp, toy.soft_experts(), episodes=20, seed=2)
    found = mh.solve(mh.Problem(toy.mdp, logged), mh.Population(nodes=5, max_steps=steps))
    assert found.status == mh.Status.NOT_IDENTIFIED
    assert "are not identified" in found.message
    assert ("do not use this answer" in found.message) == (steps == 3)
    assert np.isnan(found.confidence_intervals(0.95)).all()


@pytest.mark.slow
def test_estimated_transitions_widen_intervals_by_what_their_error_moves() -> None:
    counts = [expert.counts for expert in known_problem().experts[:12]]

    def found(transitions, sizes=None):
        parts = [transitions[a * TASK.mdp.n_states : (a + 1) * TASK.mdp.n_states] for a in range(2)]
        mdp = mh.MDP(parts, TASK.mdp.initial, TASK.mdp.terminal, TASK.mdp.available, sample_sizes=sizes)
        experts = [mh.Expert(str(k), mdp, "demonstrations", counts=c) for k, c in enumerate(counts)]
        solution = mh.solve(mh.Problem(mdp, experts), mh.Population(known_reward=POINTS, nodes=5))
        return solution.evidence["population"]["discount"]["Intercept"]

    stacked, rng, size, draws = TASK.mdp.stacked, np.random.default_rng(1), 50, []
    for _ in range(8):
        drawn = stacked.copy()
        for row in np.flatnonzero(np.diff(stacked.indptr)):
            cells = slice(stacked.indptr[row], stacked.indptr[row + 1])
            drawn.data[cells] = rng.multinomial(size, stacked.data[cells] / stacked.data[cells].sum()) / size
        draws.append(found(drawn)["estimate"])
    exact, wider = found(stacked), found(stacked, np.where(np.diff(stacked.indptr) > 0, size, np.inf))
    added = np.sqrt(wider["standard_error"] ** 2 - exact["standard_error"] ** 2)
    assert wider["estimate"] == pytest.approx(exact["estimate"])
    moved = np.sqrt(np.mean((np.array(draws) - exact["estimate"]) ** 2))
    assert added == pytest.approx(moved, rel=0.5)


def test_persons_at_chance_with_few_decisions_and_at_the_bounds_are_no_special_cases() -> None:
    rng = np.random.default_rng(0)
    policies = [mh.soft_plan(TASK.mdp, TASK.reward, g, 6.0).policy for g in (0.0, 1.0, 0.5, 0.7, 0.8, 0.9, 0.6, 0.75)]
    uniform = TASK.mdp.available / TASK.mdp.available.sum(axis=1, keepdims=True)
    problem = mh.Problem(TASK.mdp, TASK.simulate([*policies, uniform, policies[3]], seed=1))
    last = problem.experts[-1]
    thin = np.zeros_like(last.counts)
    for place in rng.choice(np.flatnonzero(last.counts), 5, replace=False):
        thin.ravel()[place] = 1
    problem = problem.with_experts([*problem.experts[:-1], mh.Expert(last.name, last.mdp, last.kind, counts=thin)])
    found = mh.solve(problem, mh.Population(known_reward=POINTS, nodes=7))
    assert found.status == mh.Status.CONVERGED
    assert ((found.discounts > 0.0) & (found.discounts < 1.0)).all()
    reliability = np.array(found.evidence["population"]["individuals"]["discount_reliability"])
    assert reliability[-1] < reliability[:8].min()
    assert reliability[-2] < np.median(reliability[:8])


def test_a_group_that_chooses_at_random_says_nothing_and_harms_nothing() -> None:
    uniform = TASK.mdp.available / TASK.mdp.available.sum(axis=1, keepdims=True)
    policies = [mh.soft_plan(TASK.mdp, TASK.reward, g, 6.0).policy for g in (0.5, 0.7, 0.8, 0.9, 0.6)]
    problem = mh.Problem(TASK.mdp, TASK.simulate([*policies, *[uniform] * 5], seed=2))
    frame = pd.DataFrame({"expert": problem.names, "group": np.repeat(["players", "random"], 5)})
    found = mh.solve(problem, mh.Population("~ group", frame, known_reward=POINTS, nodes=7))
    effect = found.evidence["population"]["discount"]["group[T.random]"]
    assert found.status == mh.Status.CONVERGED
    assert effect["interval"][0] < -1 < 1 < effect["interval"][1]
    reliability = np.array(found.evidence["population"]["individuals"]["discount_reliability"])
    assert reliability[5:].max() < reliability[:5].min()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["control", "training"])
def test_a_group_in_which_everyone_may_plan_for_ever_differs_though_only_a_prior_bounds_by_how_much(first: str) -> None:
    discounts = np.where(PEOPLE.frame["group"] == "training", 1.0, 0.6)
    people = TASK.persons(len(PEOPLE.frame), seed=4, discounts=discounts, temperatures=2.0)
    solver = mh.Population("~ group", people.frame, known_reward=POINTS, nodes=9, reference={"group": first})
    found = mh.solve(known_problem(people), solver)
    other, sign = ("training", 1) if first == "control" else ("control", -1)
    population = found.evidence["population"]
    effect = population["discount"][f"group[T.{other}]"]
    assert found.status == mh.Status.CONVERGED
    assert f"hardly bound the effect of group[T.{other}] on the discount" in found.message
    assert effect["method"] == "profile likelihood"
    low, high = sorted(sign * end for end in effect["interval"])
    assert 1 < low < sign * effect["estimate"] < 10
    assert high > sign * effect["estimate"] + 5
    assert effect["p"] < 1e-3
    (contrast,) = population["contrasts"]["discount"]
    for name in ("p", "interval", "method"):
        assert contrast[name] == effect[name]


@pytest.mark.slow
def test_where_persons_are_known_the_profile_agrees_with_standard_errors() -> None:
    layout, psi = layout_of(free=False)
    found = maximise(layout, Start.at(layout, psi), 7, Run())
    covariance = np.linalg.inv(found.value.information)
    place, error = layout.discount.start + 1, np.sqrt(covariance[layout.discount.start + 1, layout.discount.start + 1])
    low, high, p = effect_profile(found, place, covariance, 1000, 0.5)
    assert (high - low) / (2 * error) == pytest.approx(0.6745, rel=0.1)
    assert min(map(abs, effect_profile(found, place, covariance, 1000, 1 - p)[:2])) < 0.03 * error


@pytest.mark.slow
def test_persons_are_averaged_over_spreads_that_are_flat_in_deviations_and_correlation() -> None:
    layout, psi = layout_of(free=False)
    found = maximise(layout, Start.at(layout, psi), 9, Run())
    assert found.finished
    slopes = spread_moves(found) @ np.linalg.inv(spread_moves(found)[layout.spread])
    fine = []
    for first, second, rho in product(np.linspace(0.1, 4, 20), np.linspace(0.05, 0.9, 9), np.linspace(-0.95, 0.95, 9)):
        entries = [np.log(first), second * rho, np.log(second * np.sqrt(1 - rho**2))]
        psi = found.psi + slopes @ (np.array(entries) - found.psi[layout.spread])
        fine.append((np.exp(found.marginal.at(psi, full=False).objective - found.value.objective), psi))

    def averaged(spreads):
        values = [found.marginal.at(psi, full=False) for _, psi in spreads]
        weights = np.array([weight for weight, _ in spreads]) / sum(weight for weight, _ in spreads)
        mean = np.tensordot(weights, [v.mean for v in values], 1)
        gaps = [v.mean - mean for v in values]
        within = [v.covariance + gap[:, :, None] * gap[:, None, :] for v, gap in zip(values, gaps, strict=True)]
        return mean, np.sqrt(np.diagonal(np.tensordot(weights, within, 1), axis1=1, axis2=2))

    (mean, within), (exact, deviations) = averaged(likely_spreads(found)), averaged(fine)
    assert np.abs((mean - exact) / deviations).max() < 0.2 * np.abs((found.value.mean - exact) / deviations).max()
    np.testing.assert_allclose(within, deviations, rtol=0.06)


def test_the_spread_takes_its_part_of_the_covariance_and_leaves_the_reward() -> None:
    layout, psi = layout_of(free=True)
    found = maximise(layout, Start.at(layout, psi), 5, Run())
    moves = spread_moves(found)
    assert not moves[layout.reward].any()
    whole = np.linalg.inv(found.value.information)
    left = covariance_at_spread(found, whole)
    np.testing.assert_allclose(left + moves @ moves.T, whole, atol=1e-9)


def test_weak_priors_are_not_announced_where_persons_are_known() -> None:
    drawn = known_precisely("~ group")
    assert "weak prior" not in drawn.message
    assert max(map(abs, drawn.evidence["population"]["weak_priors"]["effects"].values())) < 0.1


def test_a_correlation_that_is_hardly_determined_is_drawn_to_0_and_announced() -> None:
    discounts = np.linspace(0.6, 0.95, 10)
    people = TASK.persons(10, seed=0, discounts=discounts, temperatures=np.geomspace(10, 3, 10))
    found = mh.solve(known_problem(people), mh.Population(known_reward=POINTS, nodes=7))
    said = found.evidence["population"]
    assert found.status == mh.Status.CONVERGED
    assert said["spread"]["correlation"]["estimate"] < 0 < said["weak_priors"]["correlation"]["moved"]
    assert "The correlation of discounts and temperatures between people is hardly determined" in found.message


def known_precisely(formula: str, frame: pd.DataFrame = PEOPLE.frame) -> mh.Solution:
    """The population of people with as many decisions as it takes to know each of them."""
    pairs = zip(PEOPLE.discounts, PEOPLE.temperatures, strict=True)
    policies = [mh.soft_plan(TASK.mdp, TASK.reward, *pair).policy for pair in pairs]
    visits = known_problem().experts[0].counts.sum(axis=1, keepdims=True)
    experts = [mh.Expert(str(k + 1), TASK.mdp, "demonstrations", counts=1e3 * visits * p) for k, p in enumerate(policies)]
    return mh.solve(mh.Problem(TASK.mdp, experts), mh.Population(formula, frame, known_reward=POINTS, nodes=5))


def test_persons_who_are_known_give_the_regression_of_their_logits() -> None:
    found = known_precisely("~ group + age").evidence["population"]
    logits = np.log(PEOPLE.discounts / (1 - PEOPLE.discounts))
    n, design = len(logits), np.column_stack([np.ones(24), PEOPLE.frame["group"] == "training", PEOPLE.frame["age"]])
    effects, (squares,), _, _ = np.linalg.lstsq(design, logits)
    errors = np.sqrt(squares / (n - 3) * np.diag(np.linalg.inv(design.T @ design)))
    assert found["spread"]["discount"]["estimate"] == pytest.approx(np.sqrt(squares / (n - 3)), rel=0.02)
    assert [e["estimate"] for e in found["discount"].values()] == pytest.approx(effects, abs=0.02)
    assert [e["standard_error"] for e in found["discount"].values()] == pytest.approx(errors, rel=0.03)


def test_a_factor_of_three_levels_has_one_test_whatever_the_level_that_others_are_compared_with() -> None:
    frame = PEOPLE.frame.assign(site=np.resize(["a", "b", "c"], 24))
    logits = np.log(PEOPLE.discounts / (1 - PEOPLE.discounts))
    expected = f_oneway(*(logits[frame["site"] == site] for site in "abc"))
    for formula, table in (("~ site", frame), ("~ 0 + site", frame), ("~ site", frame.replace({"site": {"a": "z"}}))):
        test = known_precisely(formula, table).evidence["population"]["factors"]["discount"]["site"]
        assert test["degrees"] == [2, 21]
        assert test["F"] == pytest.approx(expected.statistic, rel=0.06)
        assert test["p"] == pytest.approx(expected.pvalue, abs=0.02)


def test_pairs_of_levels_are_those_of_a_regression_with_holms_correction() -> None:
    frame = PEOPLE.frame.assign(site=np.resize(["a", "b", "c"], 24))
    logits = np.log(PEOPLE.discounts / (1 - PEOPLE.discounts))
    means = {site: logits[frame["site"] == site].mean() for site in "abc"}
    spread = np.sqrt(sum((logits - frame["site"].map(means)) ** 2) / 21)
    expected = {}
    for one, other in ("ab", "ac", "bc"):
        expected[one, other] = 2 * t.sf(abs(means[other] - means[one]) / (spread / 2), 21)
    found = known_precisely("~ site", frame).evidence["population"]["contrasts"]["discount"]
    for row in found:
        one, other = row["levels"]
        assert row["estimate"] == pytest.approx(means[other] - means[one], abs=0.02)
        assert row["typical"] == pytest.approx([1 / (1 + np.exp(-means[site])) for site in (one, other)], abs=0.01)
        assert row["p"] == pytest.approx(expected[one, other], abs=0.02)
    order = sorted(found, key=lambda row: row["p"])
    least = [row["p"] * times for row, times in zip(order, (3, 2, 1), strict=True)]
    assert [row["adjusted"] for row in order] == pytest.approx(np.minimum(np.maximum.accumulate(least), 1))


def test_the_reference_changes_terms_and_no_difference(solution: mh.Solution) -> None:
    solver = mh.Population("~ group + age", PEOPLE.frame, known_reward=POINTS, nodes=7, reference={"group": "training"})
    other = mh.solve(known_problem(), solver)
    mine, turned = (s.evidence["population"] for s in (solution, other))
    assert list(turned["discount"]) == ["Intercept", "group[T.control]", "age"]
    assert turned["discount"]["group[T.control]"]["estimate"] == pytest.approx(-mine["discount"]["group[T.training]"]["estimate"])
    for kind in ("discount", "temperature"):
        before, after = ({row["column"]: row for row in found["contrasts"][kind]} for found in (mine, turned))
        assert before["group"]["levels"] == after["group"]["levels"][::-1] == ["control", "training"]
        assert before["group"]["typical"] == pytest.approx(after["group"]["typical"][::-1])
        for column in ("group", "age"):
            assert before[column]["p"] == pytest.approx(after[column]["p"])
    new = pd.DataFrame({"group": ["training"], "age": [40.0]})
    old = mh.Population("~ group + age", PEOPLE.frame).predict(solution, new)
    np.testing.assert_allclose(solver.predict(other, new), old, atol=1e-6)
    for reference, said in (
        ({"group": "HC"}, "reference of group must be one of control, training, got HC"),
        ({"age": "40"}, r"got age, which holds numbers: if these are groups, write C\(age\)"),
        ({"site": "a"}, "must name a column of the formula"),
    ):
        with pytest.raises(ValueError, match=said):
            mh.solve(known_problem(), replace(solver, reference=reference))


def test_a_group_of_two_levels_needs_no_test_of_its_own(solution: mh.Solution) -> None:
    assert solution.evidence["population"]["factors"] == {"discount": {}, "temperature": {}}


def test_the_order_and_names_of_persons_do_not_matter(solution: mh.Solution) -> None:
    problem = known_problem()
    order = np.random.default_rng(1).permutation(problem.n_experts)
    renamed = [mh.Expert(f"x{k}", e.mdp, e.kind, counts=e.counts) for k in order for e in [problem.experts[k]]]
    frame = PEOPLE.frame.sample(frac=1, random_state=2)
    frame["expert"] = [f"x{problem.names.index(name)}" for name in frame["expert"]]
    other = mh.solve(mh.Problem(TASK.mdp, renamed), mh.Population("~ group + age", frame, known_reward=POINTS, nodes=7))
    np.testing.assert_allclose(other.discounts, solution.discounts[order], atol=1e-6)
    for term, found in solution.evidence["population"]["discount"].items():
        assert other.evidence["population"]["discount"][term]["estimate"] == pytest.approx(found["estimate"], abs=1e-6)


def test_a_group_renamed_turns_the_difference_round(solution: mh.Solution) -> None:
    frame = PEOPLE.frame.replace({"control": "z"})
    other = mh.solve(known_problem(), mh.Population("~ group + age", frame, known_reward=POINTS, nodes=7))
    mine, turned = (s.evidence["population"]["discount"] for s in (solution, other))
    assert turned["group[T.z]"]["estimate"] == pytest.approx(-mine["group[T.training]"]["estimate"], abs=1e-6)
    assert turned["group[T.z]"]["p"] == pytest.approx(mine["group[T.training]"]["p"], abs=1e-6)


def test_new_persons_are_predicted_from_their_covariates(solution: mh.Solution) -> None:
    solver, age = mh.Population("~ group + age", PEOPLE.frame), PEOPLE.frame["age"].mean()
    expected = solution.evidence["population"]["predictions"][f"group = training, age = {age:.4g}"]
    new = pd.DataFrame({"group": ["training", "training", "control"], "age": [age, 90.0, age]})
    found = solver.predict(solution, new)
    assert found["discount"][0] == pytest.approx(expected["typical_discount"])
    assert found.loc[0, ["low", "high"]].tolist() == pytest.approx(expected["typical_interval"])
    assert found.loc[0, ["person_low", "person_high"]].tolist() == pytest.approx(expected["new_person_interval"])
    assert found["high"][1] - found["low"][1] > found["high"][0] - found["low"][0]
    assert (found["person_low"] < found["low"]).all()
    for wrong, said in ((new.drop(columns="age"), "value in column age"), (new.assign(group="other"), "got other")):
        with pytest.raises(ValueError, match=said):
            solver.predict(solution, wrong)


def test_a_population_survives_a_file(solution: mh.Solution, tmp_path) -> None:
    expected = solution.confidence_intervals(0.95)
    assert ((expected[:, 0] < solution.discounts) & (solution.discounts < expected[:, 1])).all()
    solution.to_json(tmp_path / "population.json")
    again = mh.Solution.from_json(tmp_path / "population.json")
    assert again.evidence["population"]["discount"] == solution.evidence["population"]["discount"]
    assert again.options["persons"]["group"] == PEOPLE.frame["group"].tolist()
    np.testing.assert_array_equal(again.confidence_intervals(0.95), expected)


def changed(**columns) -> pd.DataFrame:
    return PEOPLE.frame.assign(**columns)


@pytest.mark.parametrize(
    ("formula", "persons", "said"),
    [
        ("~ group", PEOPLE.frame.assign(expert="x" + PEOPLE.frame["expert"]), "nobody who can be compared"),
        ("~ group", pd.concat([PEOPLE.frame, PEOPLE.frame.iloc[:1]]), "got 1 twice"),
        ("~ group", PEOPLE.frame.drop(columns="expert"), "must have the column expert"),
        ("~ grp", PEOPLE.frame, "names grp, which people do not have: the columns are expert, group, age"),
        ("~ group +", PEOPLE.frame, "must join columns by"),
        ("age ~ group", PEOPLE.frame, "only to the right of ~"),
        ("~ 0", PEOPLE.frame, "at least one term"),
        ("~ group + site", changed(site="all"), "column site of persons must vary"),
        ("~ age + months", changed(months=12.0 * PEOPLE.frame["age"]), "must add something"),
        (
            "~ expert",
            PEOPLE.frame,
            "must be comparable by column expert, got nobody who can be compared: 1, 2, .* 19 more .the only one of their",
        ),
        ("~ site", changed(site=["a", *"b" * 23]), "must vary, got b for everyone, without 1 .the only one of their site"),
        (
            "~ age",
            changed(age=["forty", *map(str, range(23))]),
            "column age .* must hold numbers, as for most, got 'forty' for 1",
        ),
        ("~ age", changed(age=[1e300, *range(23)]), "must be neither above 1e100 .* got 1e.300 in age"),
        ("~ age", changed(age=[np.inf, *range(23)]), "must be finite"),
        ("~ age", changed(age=[[1]] * 24), "column age of persons must hold text or numbers, got bytes or nested values"),
        ("~ log(age - 100)", PEOPLE.frame, r"must be finite, got a NaN or infinity in log\(age - 100\)"),
        ("~ log(group)", PEOPLE.frame, "cannot be used"),
        ("~ C(group, levels=['control'])", PEOPLE.frame, "cannot be used"),
        ("~ C(group, Treatment('none'))", PEOPLE.frame, "cannot be used"),
        ("~ log(open)", PEOPLE.frame, "names open, which people do not have"),
        ("~ group", None, "the columns are none"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(formula: str, persons: pd.DataFrame, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        mh.solve(known_problem(), mh.Population(formula, persons, known_reward=POINTS))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "code",
    [
        'np.save("x", age)',
        '__import__("os").system("touch x")',
        'open("x", "w")',
        'log(open("x", "w"))',
        'C(group)(open("x", "w"))',
        'C(group, levels=[open("x", "w")])',
        'C(group, levels=[i for i in open("x", "w")])',
        'C(group, **open("x", "w"))',
        'C(*open("x", "w"))',
        "C(group, _context=1)",
        'age[open("x", "w")]',
        '{age.map(lambda a: open("x", "w"))}',
        "I(age.__class__)",
        "I(open('x', 'w') if age else 1)",
        "log(`lambda`: open('x', 'w'))",
        'log(f\'{open("x", "w")}\')',
        "log((y := open('x', 'w')))",
        "hashed(group, 3, hash_func=open)",
        "I(9**9**9**9)",
        "I('a' * 999999999)",
        "poly(age, 1000000000)",
        "bs(age, df=100000 * 10000)",
        "(age + group)**99999999",
        "*".join("abcdefghijklmnopqrstuvwxyz"),
        "(" * 10_000,
        "log(" * 10_000,
        "log(a\0)",
        ".",
    ],
)
@pytest.mark.parametrize("formula", ["~ {}", "{} ~ age", "~ age + ({} | expert)", "~ {} + (1 | expert)", "~ (1 | {})"])
def test_a_formula_runs_nothing_but_the_functions_that_it_may(code: str, formula: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="formula") as error:
        mh.Population(formula.format(code), PEOPLE.frame)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
    assert not list(tmp_path.iterdir())


def test_a_column_may_have_any_name_and_is_never_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("years lived", "__import__('os').system('touch x')", "a\" + open('x', 'w') + \"b", "np", "open", "log"):
        frame = PEOPLE.frame.rename(columns={"age": name})
        expected = read_covariates("~ age", PEOPLE.frame, known_problem()).matrix
        found = read_covariates(f"~ `{name}`", frame, known_problem())
        np.testing.assert_array_equal(found.matrix, expected)
    frame = PEOPLE.frame.rename(columns={"age": "a\" + open('x', 'w') + \"b"})
    found = read_covariates("~ sqrt(`a\" + open('x', 'w') + \"b`)", frame, known_problem())
    np.testing.assert_allclose(found.matrix, np.sqrt(expected))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("~ C(group, Treatment('training'))", 2),
        ("~ C(group, contr.sum) * center(age)", 4),
        ("~ scale(age) + I(age**2) + sqrt(age) + log(age + 1)", 5),
        ("~ bs(age, df=4)", 5),
        ("~ poly(age, 2) + I(age > 40)", 4),
        ("~ C(decade)", 6),
        ("~ C(mixed)", 3),
        ("~ (group + age)**2 - group", 3),
    ],
)
def test_operators_and_named_functions_make_terms_and_typical_persons(formula: str, terms: int) -> None:
    frame = PEOPLE.frame.assign(
        decade=np.resize([2, 3, 4, 5, 6, 1], 24), mixed=np.resize(np.array([1, "a", 2.5], dtype=object), 24)
    )
    found = read_covariates(formula, frame, known_problem())
    assert found.matrix.shape == (24, terms)
    assert np.isfinite(found.pattern_rows).all()
    assert found.pattern_rows[list(found.groups)].shape == found.matrix.shape


def test_a_saved_population_cannot_carry_code(solution: mh.Solution, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for options, said in (({"formula": '~ np.save("x", age)'}, "must not hold"), ({"__class__": "os.system"}, "are none of")):
        replace(solution, options={**solution.options, **options}).to_json(tmp_path / "population.json")
        again = mh.Solution.from_json(tmp_path / "population.json", known_problem())
        with pytest.raises(ValueError, match=said):
            mh.simulate_study(again, studies=2)
    assert [path.name for path in tmp_path.iterdir()] == ["population.json"]


def gaps() -> pd.DataFrame:
    """The people with one row missing, one too many, an age missing, and one alone at a site."""
    frame = PEOPLE.frame.assign(site=["c", *np.resize(["a", "b"], 23)], age=PEOPLE.frame["age"].astype(float))
    frame.loc[frame["expert"] == "3", "age"] = np.nan
    return pd.concat([frame[frame["expert"] != "2"], frame.iloc[:1].assign(expert="zoe")])


LEFT_OUT = {
    "2": "no row in the table of people",
    "zoe": "no decisions",
    "3": "no age",
    "1": "the only one of their site",
}


def test_persons_who_cannot_be_compared_are_left_out_and_named() -> None:
    solver = mh.Population("~ age + site", gaps(), known_reward=POINTS, nodes=5)
    found = mh.solve(known_problem(), solver)
    assert found.evidence["population"]["left_out"] == LEFT_OUT
    assert "4 of 25 people are left out of the comparison: 2 (no row in the table of people); zoe (no decisions)" in found.message
    kept = [name for name in known_problem().names if name not in LEFT_OUT]
    assert list(found.experts) == kept == list(found.problem.names)
    problem = known_problem()
    by_hand = problem.with_experts(e for e in problem.experts if e.name in kept)
    complete = gaps()[gaps()["expert"].isin(kept)]
    other = mh.solve(by_hand, mh.Population("~ age + site", complete, known_reward=POINTS, nodes=5, missing="fail"))
    assert other.evidence["population"]["left_out"] == {}
    np.testing.assert_array_equal(other.discounts, found.discounts)
    assert solver.predict(found, complete).shape == (21, 5)
    with pytest.raises(ValueError, match=r'missing="fail", got 2 \(no row'):
        mh.solve(known_problem(), replace(solver, missing="fail"))
    assert mh.solve(known_problem(), mh.Population("~ 1", gaps(), POINTS, nodes=5)).evidence["population"]["persons"] == 24


@pytest.mark.slow
def test_a_study_with_gaps_is_simulated_without_those_who_were_left_out() -> None:
    solver = mh.Population("~ age + site", gaps(), known_reward=POINTS, nodes=5)
    solution = mh.solve(known_problem(), solver)
    asked = {"term": "age", "effects": [0.0], "decisions": [], "people": [], "studies": 2}
    found = mh.simulate_study(solution, None, PEOPLE.demonstrations, **asked)
    assert found.sizes[0].people == 21
    again = mh.simulate_study(known_problem(), solver, PEOPLE.demonstrations, **asked)
    np.testing.assert_array_equal(again.sizes[0].estimates, found.sizes[0].estimates)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "zero"), [(1e6, 0.0), (1e-6, 0.0), (1.0, 1e9)])
def test_the_units_of_a_covariate_do_not_matter(solution: mh.Solution, unit: float, zero: float) -> None:
    frame = changed(age=unit * PEOPLE.frame["age"] + zero)
    other = mh.solve(known_problem(), mh.Population("~ group + age", frame, known_reward=POINTS, nodes=7))
    mine, turned = (s.evidence["population"]["discount"] for s in (solution, other))
    for term, size in (("group[T.training]", 1.0), ("age", unit)):
        assert size * turned[term]["estimate"] == pytest.approx(mine[term]["estimate"], rel=1e-5)
        assert turned[term]["p"] == pytest.approx(mine[term]["p"], rel=1e-5)
    np.testing.assert_allclose(other.discounts, solution.discounts, atol=1e-7)


def test_options_are_checked() -> None:
    for options, said in (
        ({"formula": 3}, "formula must be a text"),
        ({"persons": [1]}, "persons must be a data frame"),
        ({"nodes": 1}, "nodes must be a whole number of at least 3"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
        ({"reference": "group"}, "reference must map columns to groups, got 'group'"),
        ({"missing": "ignore"}, "missing must be drop or fail, got 'ignore'"),
    ):
        with pytest.raises(ValueError, match=said):
            mh.Population(**options)


def cliff_people(discounts: np.ndarray, episodes: int = 30) -> mh.Problem:
    """People of the cliff with these discounts, who hardly choose at random."""
    d = mh.domains.cliff()
    policies = [mh.soft_plan(d.mdp, d.reward, gamma, 0.5).policy for gamma in discounts]
    return mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, policies, episodes=episodes, seed=0))


def test_where_persons_differ_too_much_for_a_typical_one_their_distribution_is_shown():
    """Half look hardly ahead and half very far: nobody is near the middle of a normal distribution of logits."""
    rng = np.random.default_rng(0)
    discounts = np.where(np.arange(24) % 2, rng.uniform(0.01, 0.04, 24), rng.uniform(0.97, 0.99, 24))
    solver = mh.Population("~ 1", known_reward=mh.domains.cliff().reward)
    found = mh.solve(cliff_people(discounts, 60), solver).evidence["population"]
    assert found["spread"]["discount"]["estimate"] > 3.0
    low, _, high = found["distribution"]["everyone"]["quartiles"]
    assert low < 0.25
    assert high > 0.8
    assert any("its typical person may be nobody" in caution and f"{low:.2f}" in caution for caution in found["cautions"])


def test_neither_the_unit_nor_the_origin_of_a_covariate_matters_nor_that_of_the_reward():
    """Age in thousandths of a year or counted from another year, and points times 0.01 or 100: the same tests and predictions."""
    rng, reward = np.random.default_rng(2), mh.domains.cliff().reward
    age = rng.normal(40, 12, 16)
    problem = cliff_people(1 / (1 + np.exp(-(0.04 * (age - 40) + rng.normal(0.4, 0.5, 16)))), 12)
    table = pd.DataFrame({"expert": problem.names, "age": age})
    asked = pd.DataFrame({"age": [30.0, 55.0]})

    def fitted(scale: float = 1.0, shift: float = 0.0, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        solver = mh.Population("~ age", table.assign(age=scale * table["age"] + shift), known_reward=factor * reward)
        found = mh.solve(problem, solver)
        effects = [found.evidence["population"][kind]["age"] for kind in ("discount", "temperature")]
        numbers = [effect["p"] for effect in effects] + [effect["estimate"] * scale for effect in effects]
        predicted = solver.predict(found, asked.assign(age=scale * asked["age"] + shift))
        people = np.concatenate([found.discounts, found.temperature / factor, found.confidence_intervals(0.95).ravel()])
        return np.array(numbers), np.concatenate([predicted.to_numpy().ravel(), people])

    numbers, predicted = fitted()
    for changed, tolerance in (
        ((1000.0, 0.0), 1e-6),
        ((1.0, -2000.0), 1e-6),
        ((1.0, 0.0, 0.01), 1e-3),
        ((1.0, 0.0, 100.0), 1e-3),
    ):
        others = fitted(*changed)
        assert np.allclose(others[0], numbers, rtol=20 * tolerance, atol=tolerance)
        assert np.allclose(others[1], predicted, rtol=tolerance, atol=tolerance)
