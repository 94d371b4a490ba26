"""Tails, quantiles and scattered points are those of `scipy.stats`, which takes long to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import multihorizon as mh
from multihorizon.numerics.distributions import chi2_ppf, chi2_sf, halton, t_ppf, t_sf


def test_tails_and_quantiles_are_those_of_scipy() -> None:
    x, degrees = np.array([-1.0, 0.0, 0.3, 3.3, 800.0]), np.array([1, 2, 3, 40, 5])
    np.testing.assert_allclose(chi2_sf(x, degrees), stats.chi2.sf(x, degrees), rtol=1e-13)
    assert np.isnan(chi2_sf(1.0, 0))
    assert [chi2_ppf(level, 3) for level in (0.5, 0.95)] == pytest.approx(stats.chi2.ppf([0.5, 0.95], 3), rel=1e-13)
    few = np.array([1.3, 4.0, 200.0, np.inf, np.nan])
    np.testing.assert_allclose(t_ppf(0.975, few), stats.t.ppf(0.975, few), rtol=1e-10)
    np.testing.assert_allclose(t_sf(2.5, few), stats.t.sf(2.5, few), rtol=1e-10)


@pytest.mark.parametrize("dimension", [1, 3, 12])
def test_scattered_points_are_those_of_scipy(dimension: int) -> None:
    found = halton(dimension, 50, np.random.default_rng(3))
    np.testing.assert_allclose(found, stats.qmc.Halton(dimension, seed=3).random(50), atol=1e-14)


@pytest.mark.slow
def test_a_fit_to_a_table_imports_no_statistics_no_pictures_and_no_learning(tmp_path: Path) -> None:
    domain = mh.domains.toy()
    mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=50).to_csv(tmp_path / "decisions.csv")
    code = (
        "import sys; from typer.testing import CliRunner; from multihorizon.cli import app\n"
        f"assert CliRunner().invoke(app, ['fit', {str(tmp_path / 'decisions.csv')!r}, '--quick']).exit_code == 0\n"
        "print([m for m in ('scipy.stats', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
