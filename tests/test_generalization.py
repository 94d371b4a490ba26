import numpy as np
import pytest

import multihorizon as mh

TOY = mh.domains.toy()


@pytest.mark.parametrize("domain", [TOY, mh.domains.big_small(), mh.domains.cliff()])
def test_a_scaled_reward_loses_nothing(domain) -> None:
    error = mh.generalization_error(domain, 3 * domain.reward, tasks=20)
    assert error.values.tolist() == [0.0] * 20
    assert (error.mean, error.std) == (0.0, 0.0)


def test_the_loss_is_the_ratio_of_values() -> None:
    """On the toy the learned policy takes one action in s0; its value is the closed form of that action's chance."""
    tasks = TOY.tasks(30, seed=4)
    goal_only = np.array([0, 0, 0, 10.0])
    found = mh.generalization_error(TOY, goal_only, tasks)

    def worth(chance: float, first: float, after: float, gamma: float) -> float:
        return chance * (first + gamma * after) / (1 - gamma * (1 - chance))

    for value, task in zip(found.values, tasks, strict=True):
        chances = [task.mdp.to_array()[a, 0, target] for a, target in enumerate((3, 1, 2))]
        true = [worth(c, *pay, task.discount) for c, pay in zip(chances, [(10, 0), (6, 10), (7, 10)], strict=True)]
        learned = [worth(c, *pay, task.discount) for c, pay in zip(chances, [(10, 0), (0, 10), (0, 10)], strict=True)]
        assert value == pytest.approx((max(true) - true[int(np.argmax(learned))]) / max(true), abs=1e-12)


def test_the_sign_of_a_negative_optimum_is_kept_and_dropped() -> None:
    domain = mh.domains.cliff()
    error = mh.generalization_error(domain, -domain.reward, tasks=50, seed=0)
    assert (error.values < 0).any()
    assert (error.absolute >= 0).all()
    np.testing.assert_allclose(np.abs(error.values), error.absolute)


def test_the_seed_fixes_the_tasks() -> None:
    reward = np.array([0, 0, 0, 10.0])
    first, again, other = (mh.generalization_error(TOY, reward, 10, seed=seed).values for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_reward_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reward must have shape \(4,\), got \(3,\)"):
        mh.generalization_error(TOY, np.zeros(3))


def test_a_solution_has_intervals_that_shrink_with_its_data() -> None:
    domain = mh.domains.cliff()
    experts = [mh.soft_plan(domain.mdp, domain.reward, discount).policy for discount in (0.2, 0.5, 0.8)]
    widths = []
    for episodes in (100, 3000):
        table = mh.Demonstrations.simulate(domain.mdp, experts, episodes, seed=0)
        solution = mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood(1.0, starts=1))
        found = mh.generalization_error(domain, solution, tasks=10, draws=20)
        assert np.allclose(found.absolute, mh.generalization_error(domain, solution.reward, tasks=10).absolute)
        assert found.absolute_interval is not None
        widths.append(float(np.diff(found.absolute_interval)[0]))
        assert {"low", "high"} <= set(found.to_frame())
    assert widths[1] < widths[0]
    exact = mh.solve(mh.Problem(domain.mdp, experts), mh.ClosedForm())
    assert "ClosedForm has no standard errors" in mh.generalization_error(domain, exact, tasks=2).sentences()
