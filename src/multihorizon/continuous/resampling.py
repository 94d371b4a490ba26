"""Resampled episodes: standard errors that ask nothing of the first stage.

Each expert's episodes are drawn with replacement, first stage and answer are fitted again with the same basis and penalty, from
the answer, and the spread of the discounts is their standard error. Draw i uses the i-th child of the seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.continuous.design import make_design
from multihorizon.continuous.selection import Choice
from multihorizon.continuous.sieve_likelihood import SieveModel
from multihorizon.likelihood.ascent import climb
from multihorizon.progress import Progress
from multihorizon.tables.steps import Steps


def resampled(point: Any, choice: Choice, regressor: Any, count: int, seed: int, progress: Progress) -> Floats:
    """Discounts `(n,K)` of fits to resampled episodes of each expert, with the same basis; fits that did not end are left out."""
    model: SieveModel = point.likelihood
    steps, found = model.problem.steps, []
    for number, stream in enumerate(np.random.SeedSequence(seed).spawn(count)):
        progress(number / count, f"resampled episodes {number + 1} of {count}")
        drawn = _drawn(steps, np.random.default_rng(stream))
        design = make_design(drawn, choice.transformer, regressor, model.design.stage.smoothing)
        fresh = SieveModel(model.problem, design, model.settings, model.strength, model.tied)
        start = fresh.at(point.x, None)
        end = None if start is None else climb(start, gain=1e-3, max_steps=40)
        if end is not None and end.finished:
            found.append(fresh.discounts(end.point.x))
    if len(found) < 2:
        raise ValueError(f"fewer than two of {count} fits to resampled episodes ended: there are too few decisions")
    return np.array(found)


def _drawn(steps: Steps, rng: np.random.Generator) -> Steps:
    """Steps of each expert's episodes, drawn with replacement."""
    numbers = steps.episode_numbers
    first = np.flatnonzero(np.concatenate([[True], np.diff(numbers) != 0]))
    last = np.append(first[1:], numbers.size)
    rows = []
    for k in range(len(steps.experts)):
        own = np.flatnonzero(steps.expert[first] == k)
        rows += [np.arange(first[e], last[e]) for e in rng.choice(own, own.size)]
    return steps.select(np.concatenate(rows))
