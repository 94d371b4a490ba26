"""Posteriors: densities against their differences, draws against what is known exactly, and what is said of them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from tiny import PAYS, three_steps, tiny_solutions

import multihorizon as mh
from multihorizon.parallel import Run
from multihorizon.questions import posterior as asked

try:
    asked._extra()
    MISSING = ""
except ValueError as error:
    MISSING = str(error)
needs_bayes = pytest.mark.skipif(bool(MISSING), reason=MISSING or "nothing is missing")


def study(temperature="per_expert", lookahead=None, counted=False):
    """Three experts in a task of three steps, two rewards; transitions are counted if so wanted."""
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.2, 0.5, 0.9)]
    table = mh.Demonstrations.simulate(mdp, policies, 40, seed=0)
    if counted:
        mdp = mh.estimate_mdp(table)
        return mh.Problem(mdp, table), mh.MaximumLikelihood(temperature, starts=1)
    features = np.stack([PAYS == 2, PAYS == 1], axis=1).astype(float)
    problem = mh.Problem(mdp, table, arrival_features=features, feature_names=["two", "one"])
    return problem, mh.MaximumLikelihood(temperature, starts=1, lookahead=lookahead or mh.Exponential())


TARGETS = {
    "discounts": lambda: study(),
    "one temperature": lambda: study("shared"),
    "hyperbolic": lambda: study(lookahead=mh.Hyperbolic()),
    "quasi-hyperbolic": lambda: study("shared", mh.QuasiHyperbolic()),
    "free weights": lambda: study("shared", mh.FreeWeights()),
    "counted moves": lambda: study("shared", counted=True),
    "people": lambda: (study()[0], mh.Population(nodes=5)),
    "people with a known reward": lambda: (
        mh.Problem(three_steps(), tiny_solutions()["lists"].table),
        mh.Population(known_reward=PAYS),
    ),
}


def target_of(name, priors=None):
    problem, solver = TARGETS[name]()
    return asked._target(problem, solver, priors, 100, Run())


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_gradient_is_that_of_the_density(name):
    target = target_of(name, {"temperature": (0.3, 0.7)})
    u = target.start + 0.1 * np.random.default_rng(0).standard_normal(target.size)
    if isinstance(target, asked.PeopleTarget):  # nodes that follow have the gradient of the integral, and not of its sum
        target.marginal = asked.Marginal(target.layout, target.maximum.persons_at(u), 15)
    gradient, step = target.at(u)[1], 1e-5
    for j, move in enumerate(step * np.eye(target.size)):
        slope = (target.at(u + move)[0] - target.at(u - move)[0]) / (2 * step)
        assert slope == pytest.approx(gradient[j], rel=1e-3, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["discounts", "counted moves", "people with a known reward"])
def test_prior_draws_have_the_density_of_the_prior(name):
    """The mean of `∂ log p(u)` over draws is 0, and that of `u ∂ log p(u)` is −1, in each direction."""
    target = target_of(name, {"temperature": (0.0, 1.0)})
    draws = target.prior_draws(20_000, np.random.default_rng(0))

    def slope(u):
        gradient = target.normal_priors(u)[1]
        if isinstance(target, asked.PeopleTarget):
            gradient[target.layout.spread] += target.spread_prior(u)[1]
        else:
            gradient[target.ahead_part] += 1 - 2 / (1 + np.exp(-u[target.ahead_part]))
            gradient[target.move_part] += target.model.beside_gradient(target.place(u))[target.moves]
        return gradient

    slopes = np.array([slope(u) for u in draws])
    products = slopes * (draws - draws.mean(axis=0))
    kept = np.ones(target.size, dtype=bool)
    if isinstance(target, asked.PeopleTarget):
        kept[target.layout.spread.start + 1] = False  # its slopes have no variance, where the whole row is near 0
    errors = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) + 1) < 5 * errors + 0.01)[kept].all()
    assert (np.abs(slopes.mean(axis=0)) < 5 * slopes.std(axis=0) / np.sqrt(len(draws)) + 0.01)[kept].all()


def test_priors_that_are_none_are_refused_in_a_sentence():
    for given, words in (
        ({"rewards": 3}, "priors must be of reward, discount, temperature, got 'rewards'"),
        ({"reward": -1}, "the prior of reward must be"),
        ({"discount": "flat"}, "the mean and the standard deviation of logit γ"),
        ({"temperature": (0, 0)}, "positive standard deviation of log λ"),
        ({"spread": 1}, "got 'spread'"),
        (3, "priors must map names to numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            asked.Priors.read(given, people=False)
    with pytest.raises(ValueError, match="standard deviation of logit γ, got 'uniform'"):
        asked.Priors.read({"discount": "uniform"}, people=True)
    assert asked.Priors.read({"discount": "uniform"}, people=False) == asked.Priors()


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ValueError, match=r"pip install 'multihorizon\[bayes\]'"):
        mh.posterior(tiny_solutions()["lists"].solution)


@needs_bayes
def test_what_has_no_posterior_says_why():
    problem = study()[0]
    for given, solver, words in (
        (problem, mh.MaximumLikelihood(lookahead=mh.Depth()), "got depths, which are whole numbers"),
        (problem, mh.Population(distribution="free"), "needs a normal population"),
        (problem, mh.MPLP(), "needs MaximumLikelihood or Population, got MPLP"),
        (tiny_solutions()["vectors"].solution, None, "got one of SieveLikelihood: its states are vectors"),
        (tiny_solutions()["lists"].solution, mh.MaximumLikelihood(), "a solution has its solver"),
        ("a table", None, "got str"),
    ):
        with pytest.raises(ValueError, match=words):
            mh.posterior(given, solver)


@needs_bayes
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize("kind", ["lists", "look-ahead", "population"])
def test_a_solution_of_every_kind_has_draws_and_loo(kind):
    solution, draws = tiny_solutions()[kind].solution, 30
    if kind == "population":  # with a free reward each step plans anew, which takes long
        solution, draws = mh.solve(*TARGETS["people with a known reward"]()), 16
    tree = mh.posterior(solution, draws=draws, tune=20, chains=2)
    name = "kappa" if kind == "look-ahead" else "discount"
    assert tree["posterior"][name].dims == ("chain", "draw", "expert")
    assert tree["posterior"][name].shape == (2, draws, 3)
    assert list(tree["posterior"]["expert"].values) == list(solution.experts)
    assert set(tree.children) == {"posterior", "sample_stats", "log_likelihood", "prior", "widths"}
    decisions = solution.evidence["decisions"]
    assert tree["log_likelihood"]["decisions"].shape[2] == (3 if kind == "population" else decisions)
    loo = importlib.import_module("arviz_stats").loo(tree)
    assert loo.elpd == pytest.approx(solution.evidence["log_likelihood"], abs=15)
    assert any("below 400" in words for words in tree.attrs["warnings"])
    assert "posterior 95%" in tree.attrs["summary"]
    assert tree["widths"]["ratio"].sizes["quantity"] == sum(each[0, 0].size for each in tree["prior"].data_vars.values())


@needs_bayes
@pytest.mark.slow
@pytest.mark.parametrize("name", ["discounts", "people with a known reward"])
def test_the_same_seed_gives_the_same_draws_whoever_draws_them(name):
    problem, solver = TARGETS[name]()
    options = {"draws": 5, "tune": 5, "chains": 2}
    here, there, other = (
        mh.posterior(problem, solver, **options, seed=seed, jobs=jobs) for seed, jobs in ((1, 1), (1, 2), (2, 1))
    )
    for variable in here["posterior"].data_vars:
        assert np.array_equal(here["posterior"][variable], there["posterior"][variable])
        assert not np.array_equal(here["posterior"][variable], other["posterior"][variable])
    chains = here["posterior"]["discount"].values
    assert not np.array_equal(chains[0], chains[1])


@needs_bayes
@pytest.mark.slow
def test_draws_are_those_of_a_density_that_is_known_exactly():
    """One expert, a known reward and a known temperature: the posterior of γ is the likelihood, and sums on a grid are exact."""
    mdp = three_steps()
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, PAYS, 0.6).policy], 60, seed=3)
    problem = mh.Problem(mdp, table)
    tree = mh.posterior(problem, mh.MaximumLikelihood(1.0, known_reward=PAYS), draws=600, tune=100, chains=2)
    grid = (np.arange(400) + 0.5) / 400
    counts = np.asarray(problem.experts[0].counts)
    live = counts > 0
    logs = np.array([(counts[live] * np.log(mh.soft_plan(mdp, PAYS, g).policy[live])).sum() for g in grid])
    density = np.exp(logs - logs.max())
    density /= density.sum()
    draws = tree["posterior"]["discount"].values.ravel()
    mean = float(density @ grid)
    deviation = float(np.sqrt(density @ (grid - mean) ** 2))
    assert draws.mean() == pytest.approx(mean, abs=5 * deviation / np.sqrt(tree.attrs["min_ess_bulk"]))
    assert draws.std() == pytest.approx(deviation, rel=0.15)
    assert tree.attrs["divergences"] == 0


@needs_bayes
@pytest.mark.slow
def test_persons_of_a_population_are_drawn_around_what_is_known_of_them():
    problem, solver = TARGETS["people with a known reward"]()
    target = asked._target(problem, solver, None, 100, Run())
    solution = mh.solve(problem, solver).evidence["population"]["individuals"]
    rng = np.random.default_rng(0)
    found, _, off = target.report(np.tile(target.maximum.psi, (300, 1)), rng, decided=True)
    logits = np.log(found["discount"][1] / (1 - found["discount"][1]))
    known = target.maximum.persons
    errors = np.sqrt(known.covariance[:, 0, 0])
    assert np.abs(logits.mean(axis=0) - known.mean[:, 0]).max() < (5 * errors / np.sqrt(300)).max()
    assert np.allclose(logits.std(axis=0), errors, rtol=0.2)
    assert off < 0.05
    assert len(solution["logit_discount"]) == logits.shape[1]


@needs_bayes
@pytest.mark.slow
def test_what_the_prior_decides_is_said():
    """A constant may be added to all rewards of a task of a fixed length: it is open, though each reward is narrower."""
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.2, 0.9)]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 100, seed=0))
    tree = mh.posterior(problem, mh.MaximumLikelihood(1.0, discounts=0.5, starts=1), {"reward": 5}, draws=150, tune=150, chains=2)
    assert tree.attrs["open_directions"] >= 1
    assert any("The prior decides" in words for words in tree.attrs["warnings"])
    widths = tree["widths"].to_dataset().to_dataframe()
    assert widths["prior_decides"].any()
    assert (widths["ratio"] < 1.3).all()
    assert "N(0, 5²)" in tree.attrs["prior_reward"]


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["~ day", "~ day + (day | expert)"])
def test_the_gradient_of_persons_under_conditions(formula):
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.2, 0.4, 0.6, 0.8)]
    rows = mh.Demonstrations.simulate(mdp, policies, 40, seed=0).to_frame()
    rows["day"] = np.where(rows["episode"].astype(int) % 2, "Monday", "Friday")
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(rows, conditions=["day"]))
    target = asked._target(problem, mh.Population(formula, known_reward=PAYS), None, 100, Run())
    u = asked._mode(target)[0] + 0.05
    target.marginal = asked.Marginal(target.layout, target.maximum.persons_at(u), 5)
    gradient, step = target.at(u)[1], 1e-5
    slopes = [(target.at(u + move)[0] - target.at(u - move)[0]) / (2 * step) for move in step * np.eye(target.size)]
    assert np.allclose(slopes, gradient, rtol=1e-3, atol=2e-3)
