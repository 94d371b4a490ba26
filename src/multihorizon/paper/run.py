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
from multihorizon.paper import parts
from multihorizon.paper.settings import StudySettings
from multihorizon.parallel import Progress


@dataclass(frozen=True)
class StudyPart:
    """A part of the study: its name, what it is in a few words, and the function that computes it."""

    name: str
    title: str
    compute: Callable[[StudySettings, dict[str, Any], Progress], dict[str, Any]]


PARTS = (
    StudyPart("learned", "learning discounts and rewards", parts.compute_learned),
    StudyPart("generalization", "generalization error", parts.compute_generalization),
    StudyPart("conventions", "readings of the cliff's error", parts.compute_conventions),
    StudyPart("thresholds", "thresholds of MPMCE", parts.compute_thresholds),
    StudyPart("toy", "value functions of the toy", parts.compute_toy_study),
    StudyPart("convergence", "convergence of the searches", parts.compute_convergence),
    StudyPart("seeds", "spread of the searches over seeds", parts.compute_seeds),
    StudyPart("identifiability", "identifiability", parts.compute_identifiability),
    StudyPart("theory", "theorems in numbers", parts.compute_theory_checks),
    StudyPart("choices", "sensitivity to what the paper leaves open", parts.compute_choices),
)


def run_part(part: StudyPart, directory: Path, settings: StudySettings, done: dict[str, Any], progress: Progress) -> bool:
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
