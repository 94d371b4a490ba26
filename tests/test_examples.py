"""The example scripts in a small mode."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pytest

import multihorizon as mh

mpl.use("Agg")
EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


GALLERY = sorted(script for script in EXAMPLES.glob("*.py") if script.stem != "icu_sepsis_experts")


@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem)
def test_every_script_of_the_gallery_has_a_picture(script: Path):
    """One that it shows when the site is built, or one that is kept; the script on intensive care is not in the gallery."""
    text = script.read_text(encoding="utf-8")
    kept = re.search(r"sphinx_gallery_thumbnail_path = '(.+)'", text)
    if kept is None:
        assert "plt.show()" in text
        assert script.stem.startswith(("plot_", "frozen_lake"))
    else:
        assert (EXAMPLES.parent / "docs" / kept[1]).exists()


@pytest.mark.slow
def test_frozen_lake():
    pytest.importorskip("gymnasium")
    analysis = load("frozen_lake").main(episodes=300, quiet=True)
    assert analysis.solution.status == mh.Status.CONVERGED
    assert sorted(analysis.solution.experts) == ["careful", "hasty", "patient"]
    assert "estimated" in analysis.remarks[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_a_network_learns_the_reward_and_the_discounts():
    example = load("plot_neural_reward")
    np.testing.assert_allclose(example.discounts, example.DISCOUNTS, atol=0.1)
    assert np.corrcoef(example.reward, example.true)[0, 1] > 0.95
    weights = np.append(np.random.default_rng(1).normal(size=sum(example.sizes)), np.zeros(3))
    slope = example.loss(weights)[1]
    for place in range(weights.size):
        step = 1e-5 * (np.arange(weights.size) == place)
        ends = example.loss(weights + step)[0] - example.loss(weights - step)[0]
        assert slope[place] == pytest.approx(ends / 2e-5, rel=1e-3, abs=1e-2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_notebook_on_results_runs_cell_by_cell(capsys):
    mpl.pyplot.close("all")  # figures of other examples
    names, shown, drawn = {}, [], 0
    for cell in re.split(r"^# %%$", (EXAMPLES / "plot_results.py").read_text(encoding="utf-8"), flags=re.MULTILINE):
        *lines, last = ast.parse(cell).body
        exec(compile(ast.Module(lines, []), "plot_results.py", "exec"), names)
        if isinstance(last, ast.Expr):  # a notebook shows the value of a last expression
            value = eval(compile(ast.Expression(last.value), "plot_results.py", "eval"), names)
            shown += [value._repr_html_()] if hasattr(value, "_repr_html_") else []
        else:
            exec(compile(ast.Module([last], []), "plot_results.py", "exec"), names)
        drawn += len(mpl.pyplot.get_fignums())
        mpl.pyplot.close("all")
    assert drawn == 2
    assert [re.search("<b>(.*?)</b>", html)[1] for html in shown] == ["Solution", "PairwiseTests", "Solution"]
    said = capsys.readouterr().out
    assert all(word in said for word in ("discounts, with 95% CIs", r"\midrule", "| parameter | reward |"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("icu_sepsis") is None, reason="needs icu-sepsis")
def test_icu_sepsis():
    solution = load("icu_sepsis_experts").main(episodes=1000, quick=True)
    assert solution.status == mh.Status.CONVERGED
    assert solution.reward[1] > 0 > solution.reward[0]
    assert (np.abs(solution.discounts - (0.5, 0.8, 0.95, 0.99)) < 4 * solution.standard_errors).all()


@pytest.mark.slow
def test_mountain_car():
    pytest.importorskip("gymnasium")
    solution = load("mountain_car").main(decisions=1500, quick=True)
    found = dict(zip(solution.experts, solution.discounts, strict=True))
    assert solution.status == mh.Status.CONVERGED
    assert found["hasty"] < found["steady"] < found["patient"]
    valley, slope, flag = mh.reward_functions(solution).reward([[-0.5, 0.0], [0.0, 0.0], [0.45, 0.0]])
    assert valley < slope < flag
