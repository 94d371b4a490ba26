"""The map in CONTRIBUTING.md shows the code as it is."""

import importlib.util
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent


def load(root=ROOT):
    spec = importlib.util.spec_from_file_location("draw_architecture", root / "docs" / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_and_the_table_are_those_of_the_imports() -> None:
    draw = load()
    hint = "run: python docs/draw_architecture.py"
    assert draw.PICTURE.read_text(encoding="utf-8") == draw.drawing(), hint
    page = draw.PAGE.read_text(encoding="utf-8")
    assert page == draw.page(page), hint


def test_an_import_that_is_added_changes_the_map(tmp_path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "draw_architecture.py", tmp_path / "docs")
    source = tmp_path / "src" / "multihorizon"
    source.mkdir(parents=True)
    (source / "checks.py").write_text('"""Checks. More."""\nfrom multihorizon.mdp import MDP\nimport multihorizon as mh\n')
    draw = load(tmp_path)
    assert draw.imports("checks") == {"mdp", "__init__"}
    assert draw.owns("checks") == "Checks"


def test_arrows_that_a_longer_path_implies_are_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert load().reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_every_module_that_the_walks_name_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## What happens")[1].split("## To add")[0]
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "src" / "multihorizon" / name).exists()] == []


def test_a_walk_visits_each_module_once() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## What happens")[1].split("## To add")[0]
    for walk in text.split("\n### ")[1:]:
        named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", walk)
        assert len(named) == len(set(named)), walk.split("\n")[0]
