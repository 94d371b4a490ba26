"""The example scripts in a small mode."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import multihorizon as mh

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_frozen_lake():
    pytest.importorskip("gymnasium")
    analysis = load("frozen_lake").main(episodes=300, quiet=True)
    assert analysis.solution.status == mh.Status.CONVERGED
    assert sorted(analysis.solution.experts) == ["careful", "hasty", "patient"]
    assert "estimated" in analysis.remarks[0]


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
