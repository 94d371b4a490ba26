"""The files around the code agree with each other: one version, one list of requirements, and a changelog kept by release."""

import re
import tomllib
from pathlib import Path

import pytest

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


def requirements() -> dict[str, str]:
    """The oldest version of each package that is needed, and of Python."""
    listed = [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]
    return dict(line.split(">=") for line in listed)


def test_the_recipe_for_conda_has_the_version_and_the_requirements_of_the_package() -> None:
    recipe = pytest.importorskip("yaml").safe_load(text_of("recipe/recipe.yaml"))
    names = {"python-duckdb": "duckdb", "matplotlib-base": "matplotlib"}
    assert recipe["context"] == {"version": PROJECT["version"], "python_min": requirements()["python"]}
    asked = [
        line.replace("${{ python_min }}", recipe["context"]["python_min"]).split(" >=") for line in recipe["requirements"]["run"]
    ]
    assert {names.get(name, name): version for name, version in asked} == requirements()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]


def test_the_citation_is_one_that_readers_of_the_format_accept() -> None:
    """The keys that version 1.2.0 of the format demands and allows, of the file and of what it refers to."""
    citation = pytest.importorskip("yaml").safe_load(text_of("CITATION.cff"))
    known = {"cff-version", "title", "message", "type", "authors", "version", "date-released", "license", "abstract", "keywords"}
    assert {"cff-version", "message", "title", "authors"} <= set(citation) <= known | {"references"}
    assert citation["cff-version"] == "1.2.0"
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference) <= {"type", "title", "authors", "year", "journal", "doi"}
    for author in (*citation["authors"], *(author for reference in citation["references"] for author in reference["authors"])):
        assert set(author) in ({"name"}, {"family-names", "given-names"})
    shown = text_of("docs/questions.md")
    assert f"title   = {{{citation['title']}}}" in shown
    assert f"version = {{{citation['version']}}}" in shown


def test_the_versions_that_are_stated_are_those_that_are_asked_for_and_within_spec_0() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| ([\d.]+) \| ([\d.]+) \|$", text_of("docs/questions.md"), flags=re.MULTILINE)
    oldest = requirements()
    assert {name: version for name, version, _ in rows} == {name: oldest[name] for name, _, _ in rows}
    assert [name for name, _, _ in rows] == ["python", "numpy", "scipy", "pandas", "scikit-learn", "matplotlib"]
    for _, ours, window in rows:  # feature releases: 3.10.8 corrects 3.10
        assert tuple(map(int, ours.split(".")))[:2] <= tuple(map(int, window.split(".")))


def test_the_paper_has_its_sections_its_length_and_its_references() -> None:
    head, text = text_of("paper/paper.md").split("---\n")[1:]
    sections = re.findall(r"^# (.+)$", text, flags=re.MULTILINE)
    demanded = ["Summary", "Statement of need", "State of the field", "Software design", "Research impact statement"]
    assert sections == [*demanded, "AI usage disclosure", "Acknowledgements", "References"]
    assert 750 <= len(text.split()) <= 1750
    assert "bibliography: paper.bib" in head
    assert all(author["name"] in head for author in PROJECT["authors"])
    listed = re.findall(r"^@\w+\{(\w+),$", text_of("paper/paper.bib"), flags=re.MULTILINE)
    assert set(re.findall(r"@(\w+)", text)) == set(listed)
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "golden").iterdir()), ids=lambda path: path.stem)
def test_recorded_words_are_those_of_tests_that_exist(path: Path) -> None:
    recorded = re.findall(r"^=== (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(recorded) <= set(re.findall(r"^def (\w+)\(.*\bgolden\b", text_of(f"tests/{path.stem}.py"), flags=re.MULTILINE))
