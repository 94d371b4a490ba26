"""What `identify` says does not depend on order, names, or the rows in which equations are written."""

import numpy as np
import pytest
from posing import equations_of, features_of, identified

import multihorizon as mh


def shuffled(mdp, seed):
    """The same task with states and actions in another order and under other names, and the order of the old ones."""
    rng = np.random.default_rng(seed)
    s, a = rng.permutation(mdp.n_states), rng.permutation(mdp.n_actions)
    transitions = mdp.to_array()[np.ix_(a, s, s)]
    names = {"state_names": [f"z{i}" for i in s], "action_names": [f"b{i}" for i in a]}
    other = mh.MDP(transitions, initial=mdp.initial[s], terminal=mdp.terminal[s], available=mdp.available[np.ix_(s, a)], **names)
    return other, s, a


CASES = ["cliff", "big-small", "toy", "toy, absorbing", "cliff, temperatures", "cliff, decisions", "one reward each", "features"]


def make_case(name):
    """An MDP, data of its experts `(S,A)`, the features if any, and the temperature."""
    domains = {"cliff": mh.domains.cliff(), "big-small": mh.domains.big_small(), "toy": mh.domains.toy()}
    domains["toy, absorbing"] = mh.domains.toy(ending="absorbing")
    if name in domains:
        return domains[name].mdp, domains[name].soft_experts(), None, 1.0
    cliff = domains["cliff"]
    if name == "cliff, temperatures":
        pairs = ((0.0, 2.0), (0.2, 1.0), (0.52, 0.7))
        return cliff.mdp, [mh.soft_plan(cliff.mdp, cliff.reward, g, lam).policy for g, lam in pairs], None, "per_expert"
    if name == "cliff, decisions":
        return cliff.mdp, mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), 400, seed=1).counts(cliff.mdp), None, 1.0
    rng = np.random.default_rng(3)
    if name == "one reward each":
        mdp = mh.domains.random_mdp(9, 3, seed=5)
        return mdp, [mh.soft_plan(mdp, rng.normal(size=9), gamma).policy for gamma in (0.2, 0.6, 0.9)], None, 1.0
    features = features_of(cliff.mdp, 1)
    reward = (features @ np.array([1.0, -0.5, 2.0, -0.7])).reshape(4, 12).T
    return cliff.mdp, [mh.soft_plan(cliff.mdp, reward, gamma).policy for gamma in (0.3, 0.5, 0.9)], features, 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_order_and_names_of_experts_states_and_actions_do_not_matter(name):
    mdp, data, features, temperature = make_case(name)
    counted = name == "cliff, decisions"

    def look(mdp, data, names, features):
        experts = [mh.Expert(n, mdp, "demonstrations", counts=d) for n, d in zip(names, data, strict=True)] if counted else data
        return mh.identify(mh.Problem(mdp, experts, names=names, features=features), temperature)

    straight = look(mdp, data, ["a", "b", "c"], features)
    for seed in range(2):
        other, s, a = shuffled(mdp, seed)
        rows = (a[:, None] * mdp.n_states + s).ravel()
        k = np.random.default_rng(seed).permutation(3)
        moved = [data[i][np.ix_(s, a)] for i in k]
        turned = look(other, moved, [f"x{i}" for i in k], None if features is None else features[rows])
        assert (turned.status, turned.dimension) == (straight.status, straight.dimension)
        np.testing.assert_allclose(turned.intervals, straight.intervals[k], atol=1e-6)
        np.testing.assert_allclose(turned.discounts, straight.discounts[k], atol=1e-6)
        scale = straight.temperature[k[0]]
        order = s if features is None else np.arange(4)
        np.testing.assert_allclose(turned.reward * scale, straight.reward[order], atol=1e-5)
        np.testing.assert_array_equal(turned.reward_identified, straight.reward_identified[order])


COMPACT = {
    "ending": ({"terminal": [(3, 4)]}, 1.0),
    "no ending": ({}, 1.0),
    "a wall, and temperatures": ({"terminal": [(3, 4)], "walls": [(0, 0)]}, "per_expert"),
}


@pytest.mark.parametrize("name", COMPACT)
def test_compact_equations_say_the_same_as_those_of_every_state(name):
    """Coordinates in an orthonormal basis keep all that is computed from the equations; 300 states have 3 × 300 rows."""
    grid, temperature = COMPACT[name]
    mdp = mh.domains.gridworld(15, 20, slip=0.1, **grid)
    reward = np.random.default_rng(2).normal(size=mdp.n_states)
    scales = (1.0, 1.0, 1.0) if temperature == 1.0 else (1.0, 0.7, 1.6)
    plans = [mh.soft_plan(mdp, reward, gamma, lam).policy for gamma, lam in zip((0.3, 0.6, 0.9), scales, strict=True)]
    strange = mh.soft_plan(mdp, np.random.default_rng(3).normal(size=mdp.n_states), 0.5).policy
    for experts in (plans, [*plans[:2], strange], plans[:1]):
        problem = mh.Problem(mdp, experts)
        assert equations_of(problem).rows.size < 300
        compact = mh.identify(problem, temperature)
        full = identified(problem, temperature, least_rows=1e9)
        assert (compact.status, compact.dimension, compact.surplus) == (full.status, full.dimension, full.surplus)
        assert compact.coincidence == pytest.approx(full.coincidence, rel=1e-6)
        digits = 1e-10 if full.status == "unique" else 1e-6  # a minimum that is not 0 is found to fewer digits
        for part in ("singular_values", "discounts", "intervals", "reward"):
            np.testing.assert_allclose(getattr(compact, part), getattr(full, part), rtol=digits, atol=digits)
