"""One name for one thing: old names of arguments still work with a warning, and every seed may be a generator."""

import numpy as np
import pytest

import multihorizon as mh

CLIFF = mh.domains.cliff()
TABLE = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 60, seed=0)
PROBLEM = mh.Problem(CLIFF.mdp, TABLE)
ADVENTURE = mh.domains.space_adventure(8)
PLAYED = ADVENTURE.persons(2).demonstrations
BLOCKS = mh.Problem(ADVENTURE.mdp, PLAYED, features=ADVENTURE.features)
EXACT = mh.Problem(CLIFF.mdp, CLIFF.soft_experts())


@pytest.fixture(scope="module")
def fitted() -> mh.Solution:
    return mh.solve(PROBLEM, mh.MaximumLikelihood(1.0))


def test_old_names_of_options_still_work_with_a_warning() -> None:
    for solver, old, new in (
        (mh.Population, {"tol": 0.1}, {"tolerance": 0.1}),
        (mh.Population, {"max_iter": 5}, {"max_steps": 5}),
        (mh.SieveLikelihood, {"resamples": 3}, {"draws": 3}),
        (mh.SieveLikelihood, {"tol": 0.1}, {"tolerance": 0.1}),
        (mh.SieveLikelihood, {"max_iter": 5}, {"max_steps": 5}),
    ):
        (name,), (now,) = old, new
        with pytest.warns(DeprecationWarning, match=f"^{name} of {solver.__name__} is now {now}$") as warned:
            given = solver(**old)
        assert warned[0].filename == __file__
        assert vars(given) == vars(solver(**new))


def test_old_names_of_arguments_still_work_with_a_warning(fitted: mh.Solution) -> None:
    with pytest.warns(DeprecationWarning, match="^samples of bootstrap is now draws$"):
        old = mh.bootstrap(fitted, samples=2, seed=1)
    np.testing.assert_array_equal(old.discounts, mh.bootstrap(fitted, draws=2, seed=1).discounts)
    with pytest.warns(DeprecationWarning, match="^known of identify is now discounts$"):
        given = mh.identify(EXACT, known={"0": 0.0})
    np.testing.assert_array_equal(given.discounts, mh.identify(EXACT, discounts={"0": 0.0}).discounts)
    with (
        pytest.warns(DeprecationWarning, match="^simulations of goals is now draws$"),
        pytest.raises(ValueError, match="draws must be a whole number of at least 19"),
    ):
        mh.goals(PROBLEM, simulations=3)


def test_old_names_of_a_domains_experts_still_work_with_a_warning() -> None:
    for old, new in (("lp_discounts", "hard_discounts"), ("mce_discounts", "soft_discounts")):
        with pytest.warns(DeprecationWarning, match=f"^{old} of Domain is now {new}$") as warned:
            assert getattr(CLIFF, old) == getattr(CLIFF, new)
        assert warned[0].filename == __file__
        names = {field: value for field, value in vars(CLIFF).items() if field != new}
        with pytest.warns(DeprecationWarning, match=f"^{old} of Domain is now {new}$"):
            made = mh.domains.Domain(**names, **{old: (0.5,)})
        assert getattr(made, new) == (0.5,)
    for old, new in (("lp_experts", "hard_experts"), ("lp_action_sets", "hard_action_sets"), ("mce_experts", "soft_experts")):
        with pytest.warns(DeprecationWarning, match=f"^{old} of Domain is now {new}$"):
            same = getattr(CLIFF, old)()
        np.testing.assert_array_equal(same, getattr(CLIFF, new)())
    assert not hasattr(CLIFF, "no_such_name")


def test_an_argument_under_both_names_is_refused() -> None:
    with pytest.raises(TypeError, match="tol of Population is now tolerance, got both"):
        mh.Population(tol=0.1, tolerance=0.1)


def test_options_that_were_saved_under_old_names_are_read_without_a_warning() -> None:
    texts = {"solver": "Population", "status": mh.Status.CONVERGED, "message": "", "experts": ("a",), "objective": 0.0}
    arrays = {"discounts": np.array([0.5]), "reward": np.zeros(1), "residual": 0.0, "options": {"tol": 0.1, "max_iter": 7}}
    solver = mh.Solution(**texts, **arrays, evidence={}).solver_used()
    assert (solver.tolerance, solver.max_steps) == (0.1, 7)


SEEDED = {
    "analyse": lambda seed, _: mh.analyse(TABLE, CLIFF.mdp, quick=True, seed=seed).solution.discounts,
    "simulate": lambda seed, _: mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 3, seed=seed).to_frame(),
    "solve": lambda seed, _: mh.solve(EXACT, mh.MPMCE(search=mh.Bayesian(3, initial=2)), seed=seed).trace.discounts,
    "bootstrap": lambda seed, of: mh.bootstrap(of, 3, seed=seed).discounts,
    "check_model": lambda seed, of: mh.check_model(of, TABLE, seed=seed).to_frame(),
    "compare_goals": lambda seed, of: mh.compare_goals(of, TABLE, several=False, seed=seed).to_frame(),
    "compare_lookahead": lambda seed, _: mh.compare_lookahead(
        BLOCKS, (mh.Exponential(), mh.Depth()), PLAYED, seed=seed
    ).to_frame(),
    "design": lambda seed, of: mh.design(CLIFF.mdp, of, episodes=50, draws=2, seed=seed).weights,
    "generalization_error": lambda seed, _: mh.generalization_error(CLIFF, CLIFF.reward, 3, seed=seed).values,
    "goals": lambda seed, _: mh.goals(PROBLEM, draws=19, seed=seed).test.p_value,
    "nudge": lambda seed, of: mh.nudge(of, state="0", chance=0.6, draws=20, seed=seed).to_frame(),
    "predict": lambda seed, of: mh.predict(of, pay={"11": 1.0}, draws=20, seed=seed).low,
    "simulate_study": lambda seed, of: mh.simulate_study(
        of, mh.MaximumLikelihood(1.0, starts=1), studies=2, seed=seed
    ).to_frame(),
    "tasks": lambda seed, _: CLIFF.tasks(2, seed)[1].discount,
    "random_mdp": lambda seed, _: mh.domains.random_mdp(4, 2, seed=seed).stacked.toarray(),
    "space_adventure": lambda seed, _: mh.domains.space_adventure(8, seed=seed).starts,
    "persons": lambda seed, _: mh.domains.space_adventure(4).persons(2, seed).demonstrations.to_frame(),
    "navigation": lambda seed, _: mh.domains.navigation().simulate(20, 10, seed=seed).states,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ("analyse", "goals", "simulate_study") else n for n in SEEDED]
)
def test_every_seed_may_be_a_generator(name: str, fitted: mh.Solution) -> None:
    """One in the same state gives the same answer, and it moves on."""
    rng = np.random.default_rng(5)
    first, second = SEEDED[name](rng, fitted), SEEDED[name](np.random.default_rng(5), fitted)
    assert repr(np.asarray(first).tolist()) == repr(np.asarray(second).tolist())  # NaN equals NaN here
    assert rng.bit_generator.state != np.random.default_rng(5).bit_generator.state


def test_a_posterior_takes_a_generator(fitted: mh.Solution) -> None:
    pytest.importorskip("nutpie")
    trees = [mh.posterior(fitted, draws=4, tune=4, chains=1, seed=np.random.default_rng(5)) for _ in range(2)]
    np.testing.assert_array_equal(*(tree.posterior.discount.to_numpy() for tree in trees))


def test_a_solution_keeps_the_number_that_was_drawn_from_a_generator() -> None:
    solver = mh.MPMCE(search=mh.Bayesian(3, initial=2))
    drawn = mh.solve(EXACT, solver, seed=np.random.default_rng(5))
    again = mh.solve(EXACT, solver, seed=drawn.seed)
    np.testing.assert_array_equal(drawn.trace.discounts, again.trace.discounts)
