"""The likelihood of people under several conditions: what the mathematics says of it, whatever the formula."""

import numpy as np
import pytest
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.parallel import Run
from multihorizon.population.marginal import Marginal, PsiLayout, Start, _normal_information, modes, normal_scores
from multihorizon.population.maximum import alike, maximise, objectives, posterior
from multihorizon.problem import Problem


def cells_of(effect=-1.0, persons=8, episodes=6, seed=0, slope=0.0):
    """People on the cliff under two conditions: the crowd of cells, owners, and X with the condition around 0."""
    domain, rng = mh.domains.cliff(), np.random.default_rng(seed)
    policies = []
    for u, change in zip(rng.normal(0.5, 1.0, persons), effect + slope * rng.normal(size=persons), strict=True):
        for high in (-0.5, 0.5):
            policies.append(mh.soft_plan(domain.mdp, domain.reward, 1 / (1 + np.exp(-u - change * high))).policy)
    names = [f"{i // 2} {i % 2}" for i in range(2 * persons)]
    table = mh.Demonstrations.simulate(domain.mdp, policies, episodes=episodes, seed=seed, names=names)
    crowd = Problem(domain.mdp, table)
    order = np.argsort([int(name.split()[0]) * 2 + int(name.split()[1]) for name in crowd.names])
    design = np.stack([np.ones(2 * persons), np.tile([-0.5, 0.5], persons)], axis=1)
    return domain, crowd.some(order), np.repeat(np.arange(persons), 2), design


def layout_of(known=True, random=None, **how):
    domain, crowd, owner, design = cells_of(**how)
    reward = np.asarray(domain.reward, dtype=float) if known else None
    ridge = np.zeros(crowd.n_parameters) if known else np.full(crowd.n_parameters, 0.1)
    layout = PsiLayout(crowd, design, reward, ridge, owner=owner, random=design if random == "slope" else None)
    start = np.asarray(domain.reward, dtype=float)
    return layout, layout.pack(start, np.array([0.4, 0.1]), np.array([1.0, 0.5])) + 0.03 * np.sin(np.arange(layout.size))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("random", [None, "slope"])
def test_the_gradient_is_that_of_the_objective(known, random):
    layout, psi = layout_of(known, random, persons=4)
    marginal = Marginal(layout, modes(layout, psi), 7)
    value = marginal.at(psi)
    for j in range(layout.size):
        step = 1e-4 * (np.arange(layout.size) == j)
        up, down = (marginal.at(psi + sign * step, full=False).objective for sign in (1, -1))
        assert (up - down) / 2e-4 == pytest.approx(value.gradient[j], abs=2e-3 * max(1.0, abs(value.gradient[j])))


@pytest.mark.parametrize("random", [None, "slope"])
def test_the_information_is_the_curvature_where_the_reward_is_known(random):
    layout, psi = layout_of(True, random, persons=4)
    marginal = Marginal(layout, modes(layout, psi), 15)
    value = marginal.at(psi)
    for j in range(layout.size):
        step = 1e-3 * (np.arange(layout.size) == j)
        up, down = (marginal.at(psi + sign * step).gradient for sign in (1, -1))
        assert (down - up) / 2e-3 == pytest.approx(value.information[j], abs=0.02 * np.abs(value.information).max())


@pytest.mark.parametrize("random", [None, "slope"])
def test_objectives_at_likely_spreads_are_those_of_tables_read_anew(random):
    layout, psi = layout_of(True, random, persons=4)
    marginal, rng = Marginal(layout, modes(layout, psi), 7), np.random.default_rng(2)
    here = marginal.at(psi).objective
    near = [psi + 0.05 * rng.normal(size=psi.size) for _ in range(5)]
    anew = np.array([marginal.at(each, full=False).objective for each in near])
    assert np.abs(anew - here).max() > 0.1
    assert objectives(marginal, psi, near) == pytest.approx(anew, abs=2e-3)


def test_scores_and_information_of_the_normal_distribution_by_differences():
    rng, size = np.random.default_rng(1), 4
    rows, columns = np.tril_indices(size)
    place = rng.normal(size=size)
    at = np.concatenate([rng.normal(size=size), 0.3 * rng.normal(size=rows.size)])

    def root(x):
        found = np.zeros((size, size))
        found[rows, columns] = np.where(rows == columns, np.exp(x[size:]), x[size:])
        return found

    def log_density(x):
        away = np.linalg.solve(root(x), place - x[:size])
        return -0.5 * away @ away - np.log(np.diag(root(x))).sum()

    def slope(x, k, h=1e-5):
        return (log_density(x + h * np.eye(x.size)[k]) - log_density(x - h * np.eye(x.size)[k])) / (2 * h)

    away = np.linalg.solve(root(at), place - at[:size])
    assert normal_scores(away[None, None], root(at))[0, 0] == pytest.approx([slope(at, k) for k in range(at.size)], abs=1e-7)
    curvature = [[-(slope(at + 1e-4 * e, k) - slope(at - 1e-4 * e, k)) / 2e-4 for k in range(at.size)] for e in np.eye(at.size)]
    found = _normal_information(away[None], np.outer(away, away)[None], root(at))[0]
    assert found == pytest.approx(np.array(curvature), abs=1e-4)


def test_a_cell_that_is_cut_in_two_says_the_same():
    """Decisions under one condition may be listed as one cell or as several: the likelihood is a product over them."""
    layout, psi = layout_of(persons=5)
    rng, crowd = np.random.default_rng(0), layout.problem
    counts = crowd.tasks[0].counts
    first = sp.csr_array((rng.binomial(counts.data.astype(int), 0.5).astype(float), counts.indices, counts.indptr), counts.shape)
    order = np.argsort(np.tile(np.arange(counts.shape[0]), 2), kind="stable")
    both = sp.csr_array(sp.vstack([first, counts - first])[order])
    from dataclasses import replace

    tasks = [replace(crowd.tasks[0], counts=both)]
    cut = mh.Problem.of_tasks(tuple(map(str, range(both.shape[0]))), crowd.parameter_names, tasks)
    again = PsiLayout(cut, layout.design.repeat(2, axis=0), layout.known, layout.ridge, owner=layout.owner.repeat(2))
    one, two = (Marginal(each, modes(each, psi), 15).at(psi) for each in (layout, again))
    assert two.persons == pytest.approx(one.persons, abs=2e-3)
    assert two.gradient == pytest.approx(one.gradient, abs=0.02)


def test_each_person_with_one_cell_is_the_population_without_conditions():
    layout, psi = layout_of(persons=5)
    own = PsiLayout(layout.problem, layout.design, layout.known, layout.ridge)
    ones = PsiLayout(layout.problem, layout.design, layout.known, layout.ridge, owner=np.arange(10), random=np.ones((10, 1)))
    assert Marginal(ones, modes(ones, psi), 15).at(psi).objective == Marginal(own, modes(own, psi), 15).at(psi).objective


def test_how_conditions_are_coded_does_not_matter():
    layout, psi = layout_of(persons=5)
    recoded = layout.design @ np.array([[1.0, 0.0], [0.5, 2.0]])
    other = PsiLayout(layout.problem, recoded, layout.known, layout.ridge, owner=layout.owner)
    found, again = (maximise(each, Start.at(each, psi), 7, Run()) for each in (layout, other))
    means = [each.marginal.layout.design @ each.marginal.layout.unpack(each.psi).effects for each in (found, again)]
    assert means[1] == pytest.approx(means[0], abs=2e-3)
    assert again.value.persons.sum() == pytest.approx(found.value.persons.sum(), abs=2e-3)


@pytest.mark.slow
def test_a_change_and_how_it_differs_between_persons_are_found():
    domain, crowd, owner, design = cells_of(effect=-1.5, persons=60, episodes=40, slope=0.8, seed=3)
    reward, ridge = np.asarray(domain.reward, dtype=float), np.zeros(crowd.n_parameters)
    for random in (None, design):
        layout = PsiLayout(crowd, design, reward, ridge, owner=owner, random=random)
        found = maximise(layout, Start.at(layout, layout.pack(reward, np.array([0.0, 0.0]), np.array([1.0, 0.3]))), None, Run())
        known = posterior(found, True, (np.tile([1.0, 0.0], (60, 1)), np.eye(layout.deep // 2)[:1].repeat(60, axis=0)))
        effect, error = found.psi[layout.discount][1], np.sqrt(np.diag(known.covariance)[layout.discount][1])
        assert found.finished
        assert abs(effect + 1.5) < 3 * error + 0.15 * (random is None)
        assert known.cells.discounts.shape == (120,)
        assert known.persons.discounts.shape == (60,)
    deviations = np.sqrt(np.diag(layout.unpack(found.psi).covariance))
    assert deviations[0] == pytest.approx(1.0, abs=0.35)
    assert deviations[2] == pytest.approx(0.8, abs=0.35)


@pytest.mark.slow
def test_persons_who_change_differently_are_told_from_those_who_change_alike():
    p_values = []
    for slope in (0.0, 1.5):
        domain, crowd, owner, design = cells_of(effect=-1.0, persons=40, episodes=20, slope=slope, seed=1)
        reward = np.asarray(domain.reward, dtype=float)
        layout = PsiLayout(crowd, design, reward, np.zeros(crowd.n_parameters), owner=owner)
        found = maximise(
            layout, Start.at(layout, layout.pack(reward, np.array([0.5, 0.0]), np.array([1.0, 0.3]))), 7, Run(), 1e-3
        )
        p_values.append(alike(found)[1, 0])
    assert p_values[0] > 0.05
    assert p_values[1] < 0.01
