"""Running the parts: each part's numbers go to `data/NAME.json`, and a run that was killed goes on with the next part.

A part is a function of the settings and of the parts before it; the same seed gives the same JSON. How long things took is not
a function of the seed, so it goes to `timings/NAME.json`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import multihorizon as mh
from multihorizon.files import write_json
from multihorizon.paper.parts import compute as compute_choices
from multihorizon.paper.parts import (
    compute_convergence,
    compute_identifiability,
    compute_learned,
    compute_theory_checks,
    compute_thresholds,
    compute_toy_study,
)
from multihorizon.paper.settings import Progress, Settings, compute_generalization

Compute = Callable[[Settings, dict[str, Any], Progress], dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """A part of the study: its name, what it is in a few words, and the function that computes it."""

    name: str
    title: str
    compute: Compute


PARTS = (
    Part("learned", "learning discounts and rewards", compute_learned),
    Part("generalization", "generalization error", compute_generalization),
    Part("thresholds", "thresholds of MPMCE", compute_thresholds),
    Part("toy", "value functions of the toy", compute_toy_study),
    Part("convergence", "convergence of the searches", compute_convergence),
    Part("identifiability", "identifiability", compute_identifiability),
    Part("theory", "theorems in numbers", compute_theory_checks),
    Part("choices", "sensitivity to what the paper leaves open", compute_choices),
)


def run_part(part: Part, directory: Path, settings: Settings, done: dict[str, Any], progress: Progress) -> bool:
    """Compute a part, or read it where it was computed before with the same settings and version; True if computed now."""
    path = directory / "data" / f"{part.name}.json"
    header = {"part": part.name, "version": mh.__version__, "seed": settings.seed, "quick": settings.quick}
    stored = _read(path)
    if stored is not None and all(stored.get(key) == value for key, value in header.items()):
        done[part.name] = stored["data"]
        return False
    start = time.perf_counter()
    data, timings = split_timings(part.compute(settings, done, progress))
    write(directory / "timings" / f"{part.name}.json", {"part": part.name, "total": time.perf_counter() - start, "data": timings})
    write(path, {**header, "data": data})
    done[part.name] = _read(path)["data"]  # type: ignore[index]
    return True


def read_timings(directory: Path) -> dict[str, Any]:
    """All timings that were written, by part."""
    return {part.name: _read(directory / "timings" / f"{part.name}.json") or {"total": None, "data": {}} for part in PARTS}


def split_timings(data: Any) -> tuple[Any, Any]:
    """The data without the keys "seconds", and a tree of the same shape with only those."""
    if not isinstance(data, dict):
        return data, None
    kept: dict[str, Any] = {}
    times: dict[str, Any] = {}
    for key, value in data.items():
        if key == "seconds":
            times[key] = value
            continue
        kept[key], inner = split_timings(value)
        if inner:
            times[key] = inner
    return kept, times


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a killed run leaves the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    write_json(partial, content)
    os.replace(partial, path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return _with_infinities(content) if isinstance(content, dict) else None


def _with_infinities(value: Any) -> Any:
    """The same content with the infinite numbers that JSON has only as words."""
    if isinstance(value, dict):
        return {key: _with_infinities(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_infinities(entry) for entry in value]
    return float(value) if value in ("infinity", "-infinity") else value
