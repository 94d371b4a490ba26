import numpy as np
import pytest
from matplotlib.quiver import Quiver

import multihorizon as mh
from multihorizon.report import plots

CLIFF, TOY = mh.domains.cliff(), mh.domains.toy()


def arrows(ax) -> Quiver:
    return next(item for item in ax.collections if isinstance(item, Quiver))


def test_reward_map_prints_every_cell() -> None:
    ax = plots.plot_reward(CLIFF.mdp, CLIFF.reward)
    assert sorted(float(text.get_text()) for text in ax.texts) == sorted(CLIFF.reward.tolist())


def test_reward_without_a_grid_is_bars_with_names() -> None:
    ax = plots.plot_reward(TOY.mdp, TOY.reward)
    assert [bar.get_height() for bar in ax.patches] == TOY.reward.tolist()
    assert [label.get_text() for label in ax.get_xticklabels()] == list(TOY.mdp.state_names)


def test_one_arrow_for_each_optimal_action() -> None:
    domain = mh.domains.big_small()
    sets = domain.hard_action_sets()[0]
    quiver = arrows(plots.plot_policy(domain.mdp, sets))
    assert sets[~domain.mdp.terminal].sum() == quiver.N
    only_right = np.eye(4)[np.zeros(18, dtype=int)]
    quiver = arrows(plots.plot_policy(domain.mdp, only_right))
    assert (quiver.U > 0).all()
    assert (quiver.V == 0).all()


def test_down_points_down_on_the_page() -> None:
    ax = plots.plot_policy(CLIFF.mdp, np.eye(4)[np.ones(12, dtype=int)])
    assert (arrows(ax).V > 0).all()
    bottom, top = ax.get_ylim()
    assert bottom > top


def test_policy_without_a_grid_is_a_table() -> None:
    ax = plots.plot_policy(TOY.mdp, TOY.soft_experts()[0])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a0", "a1", "a2"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["s0", "s1", "s2"]


def test_value_curves_and_breakpoints_of_the_toy() -> None:
    ax = plots.plot_values_by_discount(TOY.mdp, TOY.reward, marks=[0.2])
    curves = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert [curve.get_ydata()[0] for curve in curves] == pytest.approx([9.5, 5.4, 4.2])
    assert [text.get_text() for text in ax.texts] == ["0.432", "0.876"]
    assert any(line.get_linestyle() == "--" and line.get_xdata()[0] == 0.2 for line in ax.lines)


def test_value_curves_stop_short_of_one_where_nothing_ends() -> None:
    domain = mh.domains.cliff(ending="absorbing")
    ax = plots.plot_values_by_discount(domain.mdp, domain.reward)
    assert max(line.get_xdata()[-1] for line in ax.lines if len(line.get_xdata()) > 2) == 0.99


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_figures_are_written(ending: str, tmp_path) -> None:
    intervals = mh.discount_intervals(CLIFF.mdp, CLIFF.reward)
    figure = plots.plot_intervals(CLIFF.mdp, CLIFF.reward, intervals)
    assert sum(ax.get_visible() for ax in figure.axes) == len(intervals) + 1
    plots.save(figure, tmp_path / f"f.{ending}")
    assert (tmp_path / f"f.{ending}").stat().st_size > 5000


def test_a_large_grid_gets_a_scale_instead_of_numbers() -> None:
    mdp = mh.domains.gridworld(20, 20)
    ax = plots.plot_reward(mdp, np.arange(400.0))
    assert not ax.texts
    assert len(ax.figure.axes) == 2


def test_a_reward_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reward must have shape \(4,\)"):
        plots.plot_reward(TOY.mdp, np.zeros(3))
