"""States that are vectors: exact derivatives, the tabular case, known answers, and what the data cannot show."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.kernel_approximation import RBFSampler

import multihorizon as mh
from multihorizon.choice.settings import Settings
from multihorizon.choice.sieve_model import SieveData, SieveModel
from multihorizon.likelihood.estimates import dynamics_unknown
from multihorizon.likelihood.sieve import relevant_coordinates, resume_sieve, sieve_precision
from multihorizon.solution import Status

TRUE = np.array([0.5, 0.8, 0.95])


def steps_of(table: mh.Demonstrations, mdp: mh.MDP) -> mh.Steps:
    """A finite task's table as steps whose state is a category."""
    frame = table.to_frame()
    ends = {name for name, end in zip(mdp.state_names, mdp.terminal, strict=True) if end}
    frame["terminated"] = frame.next_state.isin(ends).astype(int)
    return mh.Steps.from_frame(frame.assign(state="s" + frame.state, next_state="s" + frame.next_state), ["state"])


@pytest.fixture(scope="module")
def walk() -> mh.Steps:
    return mh.domains.navigation().simulate(3000, seed=3)


@pytest.fixture(scope="module")
def solution(walk: mh.Steps) -> mh.Solution:
    return mh.solve(mh.SampledProblem(walk), mh.SieveLikelihood(basis=mh.Splines(6), penalty=0.1))


@pytest.fixture(scope="module")
def pair() -> mh.Solution:
    """Two experts in short episodes, with standard errors from resampled ones."""
    steps = mh.domains.navigation({"a": 0.4, "b": 0.8}).simulate(2500, length=10, seed=5)
    solver = mh.SieveLikelihood(basis=mh.Splines(5), penalty=0.1, temperature="shared", draws=12)
    return mh.solve(mh.SampledProblem(steps), solver, seed=1)


def on_a_line(discounts: dict[str, float], temperature: float = 1.0, seed: int = 0) -> mh.Steps:
    """1200 decisions of each expert on a line of 61 places, the far end of which pays."""
    places = np.linspace(0, 1, 61)
    ahead = [np.clip(places + move, 0, 1)[:, None] for move in (-0.05, 0.0, 0.05)]
    moves = [np.exp(-0.5 * ((places - middle) / 0.02) ** 2) for middle in ahead]
    mdp = mh.MDP([move / move.sum(axis=1, keepdims=True) for move in moves], np.full(61, 1 / 61))
    reward = np.exp(-(((places - 0.3) / 0.1) ** 2)) + 2 * np.exp(-(((places - 0.9) / 0.1) ** 2))
    policies = [mh.soft_plan(mdp, reward, gamma, temperature).policy for gamma in discounts.values()]
    table = mh.Demonstrations.simulate(mdp, policies, episodes=60, max_steps=20, seed=seed, names=list(discounts))
    frame = table.to_frame()
    columns = {"x": places[frame.state.astype(int)], "next_x": places[frame.next_state.astype(int)]}
    return mh.Steps.from_frame(frame.assign(**columns), ["x"])


@pytest.fixture(scope="module")
def line() -> mh.Steps:
    return on_a_line(dict(zip(("a", "b", "c"), TRUE, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("make", [mh.domains.cliff, mh.domains.big_small])
def test_indicators_give_the_tabular_estimate(make) -> None:
    domain = make()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=400, seed=1)
    guess = mh.estimate_mdp(table, smoothing=0)
    rows = [guess.transition(action) for action in range(guess.n_actions)]
    names = {"state_names": guess.state_names, "action_names": guess.action_names}
    mdp = mh.MDP(rows, guess.initial, guess.terminal, guess.available, **names)  # transitions that stay as they are
    tabular = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(temperature="shared", ridge=0.1, starts=2))
    options = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, temperature="shared")
    found = mh.solve(mh.SampledProblem(steps_of(table, mdp)), options)
    assert np.abs(found.discounts - tabular.discounts).max() < 1e-6
    reward = dict(zip(found.problem.parameter_names, found.reward, strict=True))
    theirs = np.array([reward[f"state=s{name}"] for name in mdp.state_names])
    assert np.abs(theirs - tabular.reward).max() < 1e-4
    given = found.standard_errors / np.array(found.evidence["first_stage_widening"])  # the tabular task is given
    np.testing.assert_allclose(given, tabular.standard_errors, rtol=1e-3)


def small_model(steps: mh.Steps, transformer, **settings) -> SieveModel:
    data = SieveData.of(steps, transformer)
    return SieveModel(mh.SampledProblem(steps, data.basis.names), data, Settings(**settings), 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [False, True])
def test_gradient_is_the_finite_difference(walk, ending: bool) -> None:
    steps = walk
    if ending:  # whoever arrives at the far goal is done
        done = walk.known_next & (walk.next_states > 0.7).all(axis=1)
        episode_end = np.append(np.diff(walk.episode_numbers) != 0, True)
        keep = ~(done & ~episode_end)
        steps = walk.select(keep)
        steps = mh.Steps(**{**vars(steps), "terminated": done[keep] & episode_end[keep]})
    model = small_model(steps, mh.Splines(4), temperatures=np.full(3, np.nan))
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=model.n_reward), [0.4, 0.7, 0.9], [0.1, -0.2, 0.1]])
    point = model.at(x)
    assert point is not None
    for i in rng.choice(model.n_reward, 4, replace=False).tolist() + list(range(model.n_reward, model.size)):
        ahead, behind = (model.at(x + sign * 1e-5 * np.eye(model.size)[i]) for sign in (1, -1))
        assert point.gradient[i] == pytest.approx((ahead.objective - behind.objective) / 2e-5, rel=1e-5, abs=1e-5)
        change = [(a.finite_log - b.finite_log) / 2e-5 for a, b in zip(ahead.plans, behind.plans, strict=True)]
        information = sum(float((plan.policy * c**2).sum()) for plan, c in zip(point.plans, change, strict=True))
        assert point.information[i, i] == pytest.approx(information, rel=1e-6)


@pytest.mark.slow
def test_values_solve_the_projected_equation(solution) -> None:
    point = resume_sieve(solution)
    data, theta = point.likelihood.data, point.likelihood.reward(point.x)
    for plan in point.plans:
        q = data.expected_paid @ theta + plan.gamma * (data.expected_on @ plan.values)
        soft = plan.lam * np.logaddexp.reduce(np.where(data.points_available, q / plan.lam, -np.inf), axis=0)
        assert np.abs(data.projection @ soft - plan.values).max() < 1e-8


@pytest.mark.slow
def test_navigation_is_recovered(walk, solution) -> None:
    assert solution.status is Status.CONVERGED
    assert (np.abs(solution.discounts - TRUE) < 3.5 * solution.standard_errors).all()
    assert (np.diff(solution.discounts) > 0).all()
    task, found = mh.domains.navigation(), mh.reward_functions(solution)
    arrived = walk.next_states[::5]
    assert np.corrcoef(found.reward(arrived), task.reward(arrived))[0, 1] > 0.95
    assert np.corrcoef(found.values("far", arrived), task.values("far", arrived))[0, 1] > 0.97
    assert np.abs(found.policy("near", arrived) - task.policy("near", arrived)).mean() < 0.04
    frame = pd.DataFrame(arrived, columns=["x", "y"])
    assert (found.reward(frame) == found.reward(arrived)).all()
    assert (found.reward_errors(frame) > 0).all()
    assert found.reward(walk.next_states).mean() == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_the_first_stage_widens_errors(solution) -> None:
    widening = np.array(solution.evidence["first_stage_widening"])
    assert (widening > 1).all()
    assert (widening < 2).all()
    ends = solution.confidence_intervals(0.95)
    np.testing.assert_allclose(ends.mean(axis=1)[:2], solution.discounts[:2], rtol=1e-9)
    assert (np.diff(solution.confidence_intervals(0.99), axis=1) >= np.diff(ends, axis=1)).all()


@pytest.mark.slow
def test_first_stage_errors_agree_with_resampled_dynamics(pair) -> None:
    """Analytic errors agree with the spread over resampled episodes, which assumes nothing about the first stage."""
    point = resume_sieve(pair)
    analytic = sieve_precision(point)[0].standard_errors[point.likelihood.discount_slice]
    ratio = pair.standard_errors / analytic
    assert ((ratio > 0.6) & (ratio < 1.6)).all()


@pytest.mark.slow
def test_answers_do_not_depend_on_order_or_names() -> None:
    cliff = mh.domains.cliff()
    frame = mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), episodes=60, seed=1).to_frame()
    for column in ("state", "next_state"):
        frame[f"{column[:-5]}y"], frame[f"{column[:-5]}x"] = np.divmod(frame[column].astype(int), 4)
    frame["terminated"] = cliff.mdp.terminal[frame["next_state"].astype(int)].astype(int)
    names = {"0": "zoe", "1": "ann", "2": "mia"}
    mixed = frame.sample(frac=1, random_state=0)
    mixed = mixed.assign(expert=mixed.expert.map(names), action=mixed.action.map(lambda a: {"0": "zenith"}.get(a, a)))
    solver = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1)
    first, again = (
        mh.solve(mh.SampledProblem(mh.Steps.from_frame(table, columns)), solver)
        for table, columns in ((frame, ["x", "y"]), (mixed, ["y", "x"]))
    )
    theirs = dict(zip(again.experts, again.discounts, strict=True))
    for name, gamma in zip(first.experts, first.discounts, strict=True):
        assert theirs[names[name]] == pytest.approx(gamma, abs=1e-5)


@pytest.mark.slow
def test_coordinates_that_nobody_acts_on_are_left_out() -> None:
    steps = mh.domains.navigation().simulate(2000, noise_coordinates=3, seed=1)
    assert (steps.states[:, :2] == mh.domains.navigation().simulate(2000, seed=1).states).all()
    kept, p_values = relevant_coordinates(steps)
    assert kept == [0, 1]
    assert p_values["x"] < 1e-6 < p_values["noise 1"]


def test_one_expert_is_not_identified(line, golden) -> None:
    alone = line.select(line.expert == 1)
    alone = mh.Steps(**{**vars(alone), "expert": np.zeros(len(alone), dtype=np.int64), "experts": ("middle",)})
    found = mh.solve(mh.SampledProblem(alone), mh.SieveLikelihood(basis=mh.Splines(8), penalty=0.1))
    assert found.status is Status.NOT_IDENTIFIED
    assert np.isnan(found.standard_errors).all()
    assert np.isnan(found.confidence_intervals()).all()
    golden(found.message)
    known = mh.solve(mh.SampledProblem(alone), mh.SieveLikelihood(basis=mh.Splines(8), penalty=0.1, discounts=0.8))
    assert known.status is Status.CONVERGED
    low, high = mh.reward_functions(known).reward([[0.6], [0.9]])
    assert low < high
    broken = mh.solve(mh.SampledProblem(alone), mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, max_steps=1))
    assert broken.status is Status.NOT_CONVERGED  # which comes first, as with a list of states
    assert broken.message.endswith("do not use this answer.")


@pytest.mark.slow
def test_regions_that_nobody_shares_are_not_compared(golden) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for expert, low in (("left", 0.0), ("right", 10.0)):
        for episode in range(60):
            place = low + rng.uniform()
            for step in range(20):
                action = int(rng.uniform() < 0.5 + 0.3 * (place - low > 0.5))
                rows.append((expert, episode, step, action, place))
                place = low + np.clip(place - low + 0.1 * (2 * action - 1) + 0.05 * rng.normal(), 0, 1)
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "action", "place"])
    steps = mh.Steps.from_frame(frame, ["place"])
    found = mh.solve(mh.SampledProblem(steps), mh.SieveLikelihood(basis=mh.Splines(16), penalty=0.1, temperature="shared"))
    assert found.status is Status.NOT_IDENTIFIED
    golden(found.message)
    assert max(found.evidence["overlap"]) < 0.05


@pytest.mark.slow
def test_steps_that_nobody_can_predict_are_announced(solution, golden) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for expert, slope in (("ann", 1.0), ("bob", 3.0)):
        place = rng.normal(size=900)
        action = np.where(rng.random(900) < 1 / (1 + np.exp(-slope * place)), "up", "down")
        drifted = place + rng.normal(size=900)
        rows += [(expert, f"{expert}{i}", 0, action[i], place[i], drifted[i]) for i in range(900)]
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "action", "x", "next_x"])
    found = mh.solve(mh.SampledProblem(mh.Steps.from_frame(frame, ["x"])), mh.SieveLikelihood(basis=mh.Splines(4), penalty=1.0))
    assert found.evidence["next_state_r2"]["x"] < 0.02
    assert "do not rely" not in solution.message
    golden(found.message)
    assert dynamics_unknown({"x": 0.6, "y": 0.01})
    assert not dynamics_unknown({"x": 0.6, "y": np.nan})


@pytest.mark.slow
def test_a_poor_basis_is_announced(line, golden) -> None:
    found = mh.solve(mh.SampledProblem(line), mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, temperature="shared"))
    assert found.evidence["basis_too_poor"]
    golden(found.message)


@pytest.mark.slow
def test_other_transformers_and_regressors(walk, line) -> None:
    fourier = RBFSampler(gamma=0.5, n_components=8, random_state=0)
    found = mh.solve(mh.SampledProblem(line), mh.SieveLikelihood(basis=fourier, penalty=0.03, temperature="shared"))
    assert (np.diff(found.discounts) > 0).all()
    trees = ExtraTreesRegressor(8, min_samples_leaf=40, random_state=0)
    forest = mh.SieveLikelihood(basis=mh.Splines(4), regressor=trees, penalty=0.1, temperature="shared", draws=2)
    grown = mh.solve(mh.SampledProblem(walk.select(walk.step < 12)), forest)
    assert (np.diff(grown.discounts) > 0).all()
    assert grown.evidence["first_stage"] == "regressor"
    assert grown.evidence["resamples"] == 2


@pytest.mark.slow
def test_a_known_temperature_per_expert() -> None:
    """An expert twice as random is recognised as such, not as short-sighted."""
    tables = [on_a_line({"a": 0.8, "b": 0.95}, temperature=0.3), on_a_line({"c": 0.8}, temperature=0.6, seed=1)]
    steps = mh.Steps.from_frame(pd.concat([table.to_frame() for table in tables]), ["x"])
    found = mh.solve(mh.SampledProblem(steps), mh.SieveLikelihood(basis=mh.Splines(8), penalty=0.1))
    assert found.evidence["equal_temperatures_p"] < 0.01
    fitted = dict(zip(found.experts, found.temperature, strict=True))
    assert fitted["c"] / fitted["a"] == pytest.approx(2.0, rel=0.35)


@pytest.mark.slow
def test_shared_discounts(pair) -> None:
    together = mh.shared_discount_test(pair)
    assert together.p_value < 1e-6
    assert together.degrees == 1
    assert list(mh.pairwise_tests(pair)) == [together]


@pytest.mark.slow
def test_a_solution_is_saved_and_read(solution, tmp_path) -> None:
    solution.confidence_intervals()
    solution.to_json(tmp_path / "solution.json")
    read = mh.Solution.from_json(tmp_path / "solution.json")
    np.testing.assert_allclose(read.confidence_intervals(), solution.confidence_intervals())
    with pytest.raises(ValueError, match="solve again"):
        mh.reward_functions(read)


@pytest.mark.slow
def test_precision_counts_what_is_known(solution) -> None:
    point = resume_sieve(solution)
    precise, full = sieve_precision(point)
    assert precise.identified[point.likelihood.discount_slice].all()
    assert (np.linalg.eigvalsh(full - precise.covariance) > -1e-9).all()
    constant = np.append(point.likelihood.data.basis.constant, np.zeros(point.x.size - point.likelihood.n_reward))
    assert np.abs(point.information @ constant).max() < 1e-10 * np.abs(point.information).max()  # the walk never ends
    assert precise.nullity == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda walk: mh.SampledProblem(walk.to_frame()), "steps must be Steps"),
        (lambda walk: mh.SieveLikelihood(basis=mh.Splines), "basis must have the methods fit and transform"),
        (lambda walk: mh.SieveLikelihood(regressor=3), "regressor must have the methods fit and predict"),
        (lambda walk: mh.SieveLikelihood(penalty=0), "penalty must be above 0"),
        (lambda walk: mh.solve(mh.SampledProblem(walk), mh.SieveLikelihood(discounts={"bob": 0.5})), "must name experts among"),
        (lambda walk: mh.solve(mh.SampledProblem(walk), mh.SieveLikelihood(discounts=1.0)), "must be at most 0.999"),
        (lambda walk: mh.solve(mh.SampledProblem(walk), mh.SieveLikelihood(basis=mh.Splines(3))), "at least 4"),
        (lambda walk: mh.solve(mh.SampledProblem(walk), mh.MaximumLikelihood()), "solve it with SieveLikelihood"),
        (lambda walk: mh.solve(mh.SampledProblem(walk), mh.MPLP()), "solve it with SieveLikelihood"),
        (lambda walk: mh.domains.navigation([0.5, 1.0]), "must be below 1"),
    ],
)
def test_bad_input_is_refused(walk, make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(walk)


def test_finite_problems_are_refused() -> None:
    domain = mh.domains.cliff()
    with pytest.raises(ValueError, match="logged steps"):
        mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), mh.SieveLikelihood())
