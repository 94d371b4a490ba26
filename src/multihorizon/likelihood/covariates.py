"""Covariates of persons: a table with one row per person and a formula, as in R, become a design matrix X `(n,p)`.

The terms are those of the `formulaic` package: `~ group + age` has the columns `Intercept`, `group[T.b]` and `age`, where the
first group in the order of the alphabet is the one the others are compared with. `~ 1`, without covariates, has one column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from formulaic import Formula, ModelSpec, SimpleFormula
from formulaic.errors import FormulaicError

from multihorizon.checks import Floats, first_few, label
from multihorizon.tolerances import RANK_TOLERANCE

#: The column that says which expert a row is of, as in tables of decisions.
PERSON = "expert"
#: This many more persons than terms are needed: with fewer, nothing says how much persons differ.
SPARE_PERSONS = 2


@dataclass(frozen=True, eq=False)
class Covariates:
    """The design of a study.

    Attributes:
        terms: names of the columns of X.
        factors: parts of the formula with several columns, such as a group of three levels, and the places of these columns.
        matrix: X `(n,p)`, one row per person in the problem's order.
        patterns: a name for each pattern of the covariates: every combination of groups that occurs, with numbers at their mean.
        pattern_rows: the rows of X `(m,p)` that belong to them.
        groups: which of the patterns each person's groups are `(n,)`.
        frame: the covariates that the formula uses, one row per person in the problem's order.
    """

    terms: tuple[str, ...]
    factors: dict[str, tuple[int, ...]]
    matrix: Floats
    patterns: tuple[str, ...]
    pattern_rows: Floats
    groups: tuple[int, ...]
    frame: pd.DataFrame


def read_covariates(formula: str, persons: pd.DataFrame | None, names: tuple[str, ...]) -> Covariates:
    """The design matrix of persons in the order of `names`.

    Raises:
        ValueError: where table and decisions have different persons, or the formula cannot be used with the table.
    """
    frame = pd.DataFrame(index=range(len(names))) if persons is None else _in_order(persons, names)
    matrix = _model_matrix(formula, frame)
    terms = tuple(map(str, matrix.columns))
    values = matrix.to_numpy(dtype=np.float64)
    used = frame[sorted(map(str, matrix.model_spec.required_variables))]
    _require_estimable(formula, terms, values, used)
    return Covariates(terms, _factors(matrix.model_spec), values, *_patterns(matrix.model_spec, used, values), used)


def new_rows(formula: str, persons: pd.DataFrame | None, names: tuple[str, ...], new: pd.DataFrame) -> Floats:
    """The rows of X of persons who were not in the study.

    Raises:
        ValueError: where a covariate is missing, or a group did not occur in the study.
    """
    frame = pd.DataFrame(index=range(len(names))) if persons is None else _in_order(persons, names)
    spec = _model_matrix(formula, frame).model_spec
    for column in sorted(map(str, spec.required_variables)):
        if column not in new.columns or new[column].isna().any():
            raise ValueError(f"new persons must have a value in column {column}, received none")
        strange = [] if _is_number(frame[column]) else sorted(set(map(str, new[column])) - set(map(str, frame[column])))
        if strange:
            known = first_few(sorted(set(map(str, frame[column]))))
            raise ValueError(
                f"column {column} of new persons must have values of the study ({known}), received {first_few(strange)}"
            )
    rows: Floats = spec.get_model_matrix(new, context=None).to_numpy(dtype=np.float64)
    return rows


def _is_number(values: pd.Series) -> bool:
    """Whether a column holds numbers, and not the names of groups."""
    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values))


def _factors(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    columns = {str(term): tuple(range(place.start, place.stop)) for term, place in spec.term_slices.items()}
    return {term: places for term, places in columns.items() if len(places) > 1}


def _in_order(persons: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    if PERSON not in persons.columns:
        raise ValueError(f"persons must have the column {PERSON}, received {', '.join(map(str, persons.columns)) or 'none'}")
    labels = [label(value, f"column {PERSON} of persons") for value in persons[PERSON]]
    twice = next((name for name in labels if labels.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"persons must have one row for each expert, received {twice} twice")
    idle, unknown = [n for n in labels if n not in set(names)], [n for n in names if n not in set(labels)]
    if idle:
        raise ValueError(f"every person must have decisions, received none of {first_few(idle)}: leave them out of persons")
    if unknown:
        raise ValueError(f"persons must have one row for each expert, received none for {first_few(unknown)}")
    return persons.iloc[[labels.index(name) for name in names]].reset_index(drop=True)


def _model_matrix(formula: str, frame: pd.DataFrame) -> Any:
    columns = f"the columns are {', '.join(map(str, frame.columns)) or 'none'}"
    try:
        read = Formula(formula)
        if not isinstance(read, SimpleFormula):
            raise ValueError(f"formula must have terms only to the right of ~, received {formula!r}")
        missing = sorted(map(str, read.required_variables - set(map(str, frame.columns))))
        if missing:
            raise ValueError(f"formula {formula!r} names {first_few(missing)}, which persons do not have: {columns}")
        _require_complete(frame, sorted(map(str, read.required_variables)))
        return read.get_model_matrix(frame, na_action="raise", output="pandas", context=None)
    except FormulaicError as error:
        reason = re.sub(r"\x1b\[[\d;]*m|[⧛⧚]", "", str(error)).split("\n")[0]
        raise ValueError(f"formula {formula!r} cannot be used: {reason} ({columns})") from error


def _require_complete(frame: pd.DataFrame, columns: list[str]) -> None:
    """Every person needs a value of every covariate, and a covariate with one value compares nothing."""
    for column in columns:
        values = frame[column]
        if values.isna().any():
            person = frame[PERSON].iloc[int(np.argmax(values.isna()))]
            raise ValueError(f"column {column} of persons must have a value for everyone, received none for {person}")
        sizes = values.value_counts()
        if not _is_number(values) and len(sizes) > 1 and sizes.min() < 2:
            alone = first_few(sorted(map(str, sizes.index[sizes < 2])))
            raise ValueError(f"groups need more than one person each, received one person in {column} = {alone}")
        if len(sizes) == 1 and len(values) > 1:
            raise ValueError(f"column {column} of persons must vary, received {values.iloc[0]} for everyone: leave it out")


def _require_estimable(formula: str, terms: tuple[str, ...], values: Floats, used: pd.DataFrame) -> None:
    n, p = values.shape
    if not p:
        raise ValueError(f"formula must have at least one term, received {formula!r}: use ~ 1 where there is no covariate")
    if not np.isfinite(values).all():
        wrong = terms[int(np.argmax(~np.isfinite(values).all(axis=0)))]
        raise ValueError(f"covariates must be finite, received a NaN or infinity in {wrong}")
    if n < p + SPARE_PERSONS:
        per_group = ": groups need more than one person each" if len(used.columns) else ""
        raise ValueError(f"{p} terms need at least {p + SPARE_PERSONS} persons, received {n}{per_group}")
    scaled = values / np.maximum(np.abs(values).max(axis=0), 1e-300)
    for last in range(1, p):
        if np.linalg.matrix_rank(scaled[:, : last + 1], tol=RANK_TOLERANCE * n) <= last:
            others = first_few(terms[:last])
            raise ValueError(
                f"the term {terms[last]} must add something to {others}, received a combination of them: leave it out"
            )


def _patterns(spec: ModelSpec, used: pd.DataFrame, values: Floats) -> tuple[tuple[str, ...], Floats, tuple[int, ...]]:
    """The combinations of groups that occur, in order, with numbers at their mean, and whose each person is."""
    numbers = [c for c in used.columns if _is_number(used[c])]
    kinds = [c for c in used.columns if c not in numbers]
    if not len(used.columns):
        return ("everyone",), values[:1], (0,) * len(values)
    keys = [tuple(map(str, row)) for row in used[kinds].itertuples(index=False)]
    distinct = sorted(set(keys))
    typical = used.iloc[[keys.index(key) for key in distinct]].copy()
    for column in numbers:
        typical[column] = float(used[column].mean())
    rows = spec.get_model_matrix(typical, context=None).to_numpy(dtype=np.float64)
    means = [f"{c} = {float(used[c].mean()):.4g}" for c in numbers]
    names = tuple(", ".join([*(f"{c} = {v}" for c, v in zip(kinds, key, strict=True)), *means]) for key in distinct)
    place = {key: i for i, key in enumerate(distinct)}
    return names, rows, tuple(place[key] for key in keys)
