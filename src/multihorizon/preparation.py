"""From tables and transitions to a problem: checks that they agree, estimates what is missing, and says what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import (
    describe_belief,
    describe_durations,
    describe_estimate,
    estimate_mdp,
    in_one_unit,
    observed_durations,
    require_agreement,
    require_ends,
)
from multihorizon.frames import is_frame
from multihorizon.mdp import MDP
from multihorizon.names import look_alikes
from multihorizon.problem import Problem


def as_tables(tables: Any) -> list[Demonstrations]:
    """Return the tables of decisions: one or several, of which each may be a data frame."""
    listed = []
    for table in tables if isinstance(tables, list | tuple) else [tables]:
        if not isinstance(table, Demonstrations) and not is_frame(table):
            raise ValueError(
                "tables must be a data frame or Demonstrations, or a list with one of these for each task, received "
                f"{type(table).__name__}: Demonstrations.from_files reads files"
            )
        listed.append(table if isinstance(table, Demonstrations) else Demonstrations.from_frame(table))
    if not listed:
        raise ValueError("tables must hold at least one table, received none")
    return listed


def as_mdps(mdps: Any) -> list[MDP] | None:
    """Return the transitions of the tables, if they are given."""
    given = list(mdps) if isinstance(mdps, list | tuple) else None if mdps is None else [mdps]
    if not all(isinstance(mdp, MDP) for mdp in given or ()):
        raise ValueError(f"mdps must be an MDP, or a list with one for each table, received {type(mdps).__name__}")
    return given


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float | None = None,
    estimate_rest: bool = False,
    believed: bool = False,
) -> tuple[Problem, list[str]]:
    """Return one problem from one or several tables with their transitions, and remarks on what was assumed.

    Args:
        tables: one for each task.
        mdps: their transitions in the same order, checked against the tables; None estimates them.
        features: None, or a function of an MDP that gives a matrix of features and their names: `(S,d)` earned on arrival, or
            `(A·S,d)` in rows a·S + s for decisions.
        smoothing: of estimated transitions.
        estimate_rest: whether `mdps` hold only some actions of some states, and the others are estimated.
        believed: whether `mdps` are what people believe, which is what they plan with: where moves led may contradict them.
    """
    tasks, remarks = _tasks(tables, mdps, features, smoothing, estimate_rest, believed)
    problems = [
        Problem(mdp, table, feature_names=names, **{_of_features(mdp, matrix): matrix}) for table, mdp, matrix, names in tasks
    ]
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def _of_features(mdp: MDP, matrix: Any) -> str:
    """Return the name of a matrix of features: earned on arrival with a row for each state, or for each action and state."""
    return "arrival_features" if matrix is not None and matrix.shape[0] == mdp.n_states else "features"


def _tasks(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any,
    smoothing: float | None,
    estimate_rest: bool,
    believed: bool,
) -> tuple[list[tuple[Demonstrations, MDP, Any, Any]], list[str]]:
    """Return each table with its MDP, the matrix of features and their names, and remarks on what was assumed."""
    tables = in_one_unit(tables)
    labels = [pair for t in tables for pair in (("expert", t.experts), ("state", t.states), ("action", t.actions))]
    remarks = [remark for what, names in labels if (remark := look_alikes(names, what))]
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, received {len(mdps)} for {len(tables)}")
    if features is not None and not callable(features):
        raise ValueError(
            f"features must be a function that gives a matrix and names for an MDP, received {type(features).__name__}"
        )
    if mdps is None and estimate_rest:
        raise ValueError("estimate_rest must come with mdps to start from, received none: leave it out")
    if believed and mdps is None:
        raise ValueError("believed must come with the transitions that people believe in, received none")
    estimated = mdps is None or estimate_rest
    if mdps is None or estimate_rest:
        started: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, started, strict=True)]
        for table, mdp in zip(tables, mdps, strict=True):
            require_ends(table, mdp)
            remarks += describe_estimate(mdp, smoothing, table)
    tasks = []
    for table, given in zip(tables, mdps, strict=True):
        mdp = given
        if table.times is not None and not estimated:
            if mdp.durations is not None:
                raise ValueError(
                    "how long moves take must be said by the transitions or by time stamps, received both: leave out --time"
                )
            mdp = mdp.lasting(observed_durations(table, mdp, smoothing))
        remarks += describe_belief(table, mdp) if believed else require_agreement(table, mdp)
        remarks += describe_durations(table, mdp)
        tasks.append((table, mdp, *((None, None) if features is None else features(mdp))))
    return tasks, remarks
