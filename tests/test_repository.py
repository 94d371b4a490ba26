"""The files around the code agree with each other: one version, one list of Pythons, and a changelog kept by release."""

import re
import tomllib
from pathlib import Path

import multihorizon as mh

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version_of_the_package() -> None:
    assert re.search(r"^version: (.+)$", text_of("CITATION.cff"), flags=re.MULTILINE)[1] == PROJECT["version"]


def test_the_changelog_goes_by_release() -> None:
    releases = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert releases[0] in ("Unreleased", PROJECT["version"])
    numbers = [tuple(map(int, release.split("."))) for release in releases if release != "Unreleased"]
    assert numbers == sorted(numbers, reverse=True)


def test_the_workflow_runs_the_checks_on_every_python_and_system_we_name() -> None:
    named = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = text_of(".github/workflows/ci.yml")
    assert re.findall(r'"(3\.\d+)"', workflow) == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert all(system in workflow for system in ("ubuntu-latest", "macos-latest", "windows-latest"))
    assert "run: .ci/run" in workflow


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(mh.__file__).with_name("py.typed").exists()


def test_the_commands_of_the_readme_are_those_that_are_checked() -> None:
    readme, run = text_of("README.md"), text_of(".ci/run")
    assert re.search(r"^pip install .*pytest$", readme, flags=re.MULTILINE)
    assert re.search(r"^pip install \. && multihorizon demo$", readme, flags=re.MULTILINE)
    assert "grep -m1 'pytest' README.md" in run
    assert "multihorizon demo" in run
    assert "python docs/build.py" in run
