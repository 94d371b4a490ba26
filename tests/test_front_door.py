"""The names at the top level: they load when used, agree with the stub, and those that moved still work."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import multihorizon as mh


def test_the_stub_names_what_the_package_has() -> None:
    stub = ast.parse(Path(mh.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    stubbed = {alias.name: node.module.removeprefix("multihorizon.") for node in imports for alias in node.names}
    assert stubbed == {**mh._HOMES, "datasets": "multihorizon", "domains": "multihorizon", "theory": "paper"}


@pytest.mark.parametrize("name", mh.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mh, name).__doc__
    assert name in dir(mh)


@pytest.mark.parametrize("name", mh._MOVED)
def test_names_that_moved_still_work_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"multihorizon.{name} is now multihorizon.{mh._MOVED[name]}"):
        assert callable(getattr(mh, name))
    assert name not in mh.__all__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Horizon'"):
        _ = mh.Horizon


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, multihorizon; print([m for m in ('numpy', 'scipy', 'pandas', 'matplotlib') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.slow
def test_solve_stays_a_function_whatever_is_loaded_first() -> None:
    code = "import multihorizon as mh; mh.identify; mh.analyse; print(mh.solve.__name__, callable(mh.solve))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "solve True"


@pytest.mark.parametrize("name", [name for name in mh.__all__ if inspect.isfunction(getattr(mh, name))])
def test_seed_jobs_and_progress_come_last_and_by_name(name: str) -> None:
    arguments = inspect.signature(getattr(mh, name)).parameters
    last = [argument for argument in ("seed", "jobs", "progress") if argument in arguments]
    assert list(arguments)[len(arguments) - len(last) :] == last
    assert all(arguments[argument].kind is inspect.Parameter.KEYWORD_ONLY for argument in last)
    assert "jobs" not in arguments or arguments["jobs"].default == 1


PUBLIC = {name: getattr(mh, name) for name in mh._HOMES} | {
    f"{room.__name__}.{name}": getattr(room, name) for room in (mh.domains, mh.theory) for name in room.__all__
}


@pytest.mark.parametrize("name", [name for name, target in PUBLIC.items() if callable(target)])
def test_every_public_callable_says_what_it_takes_and_gives_and_has_an_example(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name])
    if inspect.isfunction(PUBLIC[name]):
        assert "Returns:" in doc
    if name in mh._HOMES or inspect.isfunction(PUBLIC[name]):  # results of functions have theirs there
        assert "Example:" in doc


def test_the_methods_of_the_paper_say_which_equation_they_are() -> None:
    equations = {"LPIRL": "Eq. 3", "NaiveLP": "Eq. 4", "MPLP": "Eq. 5 to 7", "MCE": "Eq. 8 and 9", "MPMCE": "Eq. 10, 12"}
    rest = {"MPML": "Eq. 11", "ClosedForm": "Proposition 2", "identify": "Proposition 2", "generalization_error": "Eq. 27"}
    rest |= {"plan": "Eq. 1", "soft_plan": "Eq. 2", "occupancy": "μ(s,a)", "discount_intervals": "Assumption 1"}
    theory = {"duality_chain": "Theorem 2", "likelihood_slopes": "Proposition 1", "rank_test": "Proposition 2"}
    for name, statement in (theory | {"gap_and_mismatch": "Algorithm 2"}).items():
        assert statement in inspect.getdoc(getattr(mh.theory, name)), name
    for name, equation in (equations | rest).items():
        assert equation in inspect.getdoc(getattr(mh, name)), name
    assert "Maximum-causal-entropy" in mh.MCE.__doc__
    assert "Ziebart 2010" in mh.MCE.__doc__
    assert {name: inspect.signature(getattr(mh, name)).parameters["temperature"].default for name in TEMPERATURES} == TEMPERATURES


#: Known policies and planning have one default, estimation from decisions another.
TEMPERATURES = dict.fromkeys(("soft_plan", "identify", "goals", "MCE", "MPMCE", "MPML", "ClosedForm"), 1.0) | dict.fromkeys(
    ("MaximumLikelihood", "SieveLikelihood"), "pooled"
)
