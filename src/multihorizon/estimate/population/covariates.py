"""Covariates of persons: a table with one row per person and a formula, as in R, become a design matrix X `(n,p)`.

The terms are those of the `formulaic` package: `~ group + age` has the columns `Intercept`, `group[T.b]` and `age`, where the
first group in the order of the alphabet, or the one that `reference` names, is the one the others are compared with. `~ 1`,
without covariates, has one column.

`formulaic` runs what looks like a call in a formula as Python, some of it while it parses. A formula may come from anyone, so
`read_formula` looks at its parts first, and hands on only those that are made of columns, numbers, operators and the functions
of `FUNCTIONS`.

Persons who cannot be compared are left out, as most programs of statistics do, and named: those without a row in the table or
without a value of a covariate, and those who are alone in their group, of which nothing says how much its persons differ.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from formulaic import Formula, ModelSpec, SimpleFormula
from formulaic.errors import DataMismatchWarning
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.algos.sanitize_tokens import sanitize_python_code
from formulaic.parser.algos.tokenize import tokenize
from formulaic.parser.types import ASTNode, Factor, Token
from formulaic.utils.code import sanitize_variable_names

from multihorizon.checks import RANK_TOLERANCE, Floats, Ints, first_few, label
from multihorizon.problem import Problem

#: What to do with persons who cannot be compared.
Missing = Literal["drop", "fail"]
#: All that a formula may call besides the codings.
FUNCTIONS = ("C", "I", "center", "scale", "standardize", "log", "log2", "log10", "exp", "sqrt", "poly", "bs", "cr", "cs", "cc")
#: Ways to code groups: what a formula may hand to `C`, as a name or as a call.
CODINGS = (
    *("Treatment", "Sum", "Helmert", "Diff", "Poly"),
    *(f"contr.{kind}" for kind in ("treatment", "sum", "helmert", "diff", "poly")),
)


@dataclass(frozen=True, eq=False)
class ReadFormula:
    """A formula that holds nothing but what it may.

    Attributes:
        text: as it was written.
        terms: as `formulaic` has them.
        columns: of the table of persons that it uses, in the order in which it names them.
        grouped: those of them that it uses as groups, whatever they hold: `C(site)`.
    """

    text: str
    terms: SimpleFormula
    columns: tuple[str, ...]
    grouped: frozenset[str]

    def is_number(self, values: pd.Series) -> bool:
        """Whether a column holds numbers, and not the names of groups."""
        number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        return values.name not in self.grouped and bool(number)

    def evaluate(self, spec: SimpleFormula | ModelSpec, frame: pd.DataFrame) -> Any:
        """Terms with the values of these persons; what a function cannot do with them is said in one sentence."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error", DataMismatchWarning)
                return spec.get_model_matrix(frame, na_action="ignore", output="pandas", context={"sqrt": np.sqrt})
        except Exception as error:  # of functions with values that they were not made for
            reason = _reason(error)
            text = [c for c in self.columns if not pd.api.types.is_numeric_dtype(frame[c])]
            if text and "TypeError" in reason:
                reason = f"functions such as log need numbers, received text in {first_few(text)}"
            raise ValueError(f"formula {_shown(self.text)} cannot be used: {reason}") from error


def read_formula(text: str) -> ReadFormula:
    """The formula, of which nothing was run.

    Raises:
        ValueError: if it is no formula, has a left side, is made of something that may not be in it, or has too many terms.
    """
    columns: dict[str, None] = {}
    grouped: set[str] = set()
    for token in _parsed(text, lambda: list(tokenize(text))):
        if token.token == ".":
            raise ValueError(f"formula must name its columns, received . in {_shown(text)}")
        if token.kind is Token.Kind.NAME:
            columns[token.token] = None
        if token.kind is Token.Kind.PYTHON:
            for column, in_groups in _names_in(text, token.token):
                columns[column] = None
                grouped |= {column} if in_groups else set()
    parser = DefaultFormulaParser()
    if _parsed(text, lambda: _most_terms(parser.get_ast(text))) > 1000:
        raise ValueError(f"formula must have at most 1000 terms, received more in {_shown(text)}")
    terms = _parsed(text, lambda: Formula(text, _parser=parser))
    if not isinstance(terms, SimpleFormula):
        raise ValueError(f"formula must have terms only to the right of ~, received {_shown(text)}")
    return ReadFormula(text, terms, tuple(columns), frozenset(grouped))


def _shown(text: str) -> str:
    """The text between quotes, or its beginning: formulas come from anywhere."""
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def _reason(error: Exception) -> str:
    """The first line of what another package says, without the colours that it has for terminals."""
    return re.sub(r"\x1b\[[\d;]*m|[⧛⧚]", "", str(error)).split("\n")[0] or type(error).__name__


def _parsed(text: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as error:  # of a parser that was made for formulas that are right
        why = _reason(error).rstrip(".")
        if "|" in text:
            why = "random effects such as (1 | group) are not written, as the spread of persons is always estimated"
        raise ValueError(f"formula {_shown(text)} must join columns by +, : or *, as in '~ group + age': {why}") from error


def _names_in(text: str, code: str) -> Iterator[tuple[str, bool]]:
    """The columns that a call names, and whether as groups; raises for all that may not be in a formula.

    What is looked at is the text that `formulaic` will run: the same functions have put names for those between backticks.
    """
    aliases: dict[str, str] = {}
    run = _parsed(text, lambda: sanitize_variable_names(sanitize_python_code(code), {}, aliases))
    todo: list[tuple[ast.expr, bool]] = [(_parsed(text, lambda: ast.parse(run, mode="eval")).body, False)]
    while todo:
        node, in_groups = todo.pop()
        match node:
            case ast.Name(id=name) if name not in CODINGS:
                yield aliases.get(name, name), in_groups
            case ast.Name() | ast.Attribute() if ast.unparse(node) in CODINGS:
                pass
            case ast.Constant(value=int() | float() | str() | None):
                pass
            case ast.List() | ast.Tuple():
                todo += [(part, False) for part in node.elts]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                todo.append((node.operand, in_groups))
            case ast.Compare():
                todo += [(part, in_groups) for part in (node.left, *node.comparators)]
            case ast.BinOp() if _is_arithmetic(node):
                todo += [(node.left, in_groups), (node.right, in_groups)]
            case ast.Call() if _may_be_called(node, aliases):
                parts = [*node.args, *(keyword.value for keyword in node.keywords)]
                todo += [(part, ast.unparse(node.func) == "C" and part is parts[0]) for part in parts]
            case _:
                raise ValueError(
                    f"formula {_shown(text)} must not hold {_shown(ast.unparse(node))}: use columns, numbers, operators, and the "
                    f"functions {', '.join(FUNCTIONS)} with sizes and powers of at most 100"
                )


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Whether this ends: powers of numbers alone, and texts and lists times a number, can be made to fill the memory."""
    if isinstance(node.op, ast.Pow):
        power = node.right.value if isinstance(node.right, ast.Constant) else None
        with_column = any(isinstance(part, ast.Name) for part in ast.walk(node.left))
        return isinstance(power, int | float) and power <= 100 and with_column
    parts = (node.left, node.right)
    texts = any(isinstance(part, ast.List | ast.Tuple) or isinstance(getattr(part, "value", 0), str) for part in parts)
    return isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div) and not texts


def _may_be_called(node: ast.Call, aliases: dict[str, str]) -> bool:
    """Whether this is a function that may be called, with arguments of its own, and makes no more columns than anyone needs."""
    name, given = ast.unparse(node.func), {keyword.arg or "_": keyword.value for keyword in node.keywords}
    sizes = []
    if name in ("poly", "bs", "cr", "cs", "cc"):  # these make several columns of one
        sizes = [*node.args[1:2], *(given[size] for size in ("df", "degree") if size in given)]
    small = all(isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value <= 100 for size in sizes)
    allowed = name in (*FUNCTIONS, *CODINGS) and name not in aliases
    return allowed and small and not any(keyword.startswith("_") for keyword in given)


def _most_terms(node: ASTNode | Token | None) -> float:
    """At least as many as the terms that operators make of their parts: `**` and `*` make many of few."""
    if not isinstance(node, ASTNode):
        return 1.0
    sizes = [_most_terms(part) for part in node.args]
    match node.operator.symbol:
        case "**" | "^":
            power = str(node.args[1])
            return sizes[0] ** min(int(power), 10) if power.isdecimal() else sizes[0]
        case "*" | ":":
            return sum(sizes) + float(np.prod(sizes))
        case _:
            return sum(sizes)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Typical persons who differ in one column alone: all its groups, or the lower and the upper quartile of its numbers.

    Other numbers are at their mean, and other groups count equally.

    Attributes:
        column: the column.
        is_number: whether it holds numbers.
        levels: the names of its groups, first the one that others are compared with, or both quartiles.
        rows: the rows of X `(m,p)` of these persons.
    """

    column: str
    is_number: bool
    levels: tuple[str, ...]
    rows: Floats


@dataclass(frozen=True, eq=False)
class Covariates:
    """The design of a study.

    Attributes:
        formula, spec: the formula as it was read, and with the groups and means of these persons.
        frame: the covariates that the formula uses, one row per person in the problem's order.
        names: of these persons.
        left_out: everyone else of the problem or of the table of persons, and why.
        terms: names of the columns of X.
        matrix: X `(n,p)`.
        units: T `(p,p)`, so that X T has columns of size 1 around 0, whatever the units of the covariates: effects b of X are
            `T β` with β those of X T. A column without the intercept beside it is not moved.
        factors: parts of the formula with several columns, such as a group of three levels, and the places of these columns.
        columns_of: the columns of the table that each term, and each of `factors`, is made of.
        patterns: a name for each pattern of the covariates: every combination of groups that occurs, with numbers at their mean.
        pattern_rows: the rows of X `(m,p)` that belong to them.
        groups: which of the patterns each person's groups are `(n,)`.
        comparisons: for each column, typical persons who differ in it alone.
    """

    formula: ReadFormula
    spec: ModelSpec
    frame: pd.DataFrame
    names: tuple[str, ...]
    left_out: dict[str, str]
    terms: tuple[str, ...]
    matrix: Floats
    units: Floats
    factors: dict[str, tuple[int, ...]]
    columns_of: dict[str, list[str]]
    patterns: tuple[str, ...]
    pattern_rows: Floats
    groups: Ints
    comparisons: tuple[Comparison, ...]

    def compared(self, problem: Problem) -> Problem:
        """The problem of the persons who can be compared."""
        names = set(self.names)
        return problem.with_experts([expert for expert in problem.experts if expert.name in names])

    def rows_of(self, new: pd.DataFrame) -> Floats:
        """The rows of X of persons who were not in the study.

        Raises:
            ValueError: where a covariate is missing, or a group did not occur in the study.
        """
        for column in self.formula.columns:
            if column not in new.columns or new[column].isna().any():
                raise ValueError(f"new persons must have a value in column {column}, received none")
            known = set(map(str, self.frame[column]))
            strange = set(map(str, new[column])) - known
            if strange and not self.formula.is_number(self.frame[column]):
                raise ValueError(
                    f"column {column} of new persons must have values of the study ({first_few(sorted(known))}), "
                    f"received {first_few(sorted(strange))}"
                )
        rows: Floats = self.formula.evaluate(self.spec, new).to_numpy(dtype=np.float64)
        return rows


def read_covariates(
    formula: str,
    persons: pd.DataFrame | None,
    names: tuple[str, ...],
    missing: Missing = "drop",
    reference: Mapping[str, str] | None = None,
) -> Covariates:
    """The design matrix of persons in the order of `names`.

    Those who cannot be compared are left out if `missing` is "drop". `reference` names for some columns the group that others are
    compared with.

    Raises:
        ValueError: where the formula cannot be used with the table, or persons cannot be compared and `missing` is "fail".
    """
    read = read_formula(formula)
    frame, left_out = _comparable(read, persons, names, reference or {})
    if left_out and missing == "fail":
        raise ValueError(
            f"nobody must be left out with --missing fail, received {left_out_words(left_out)}: complete the table of persons, "
            'or leave these persons out with --missing drop (in Python missing="drop")'
        )
    matrix = read.evaluate(read.terms, frame)
    spec, terms, used = matrix.model_spec, tuple(map(str, matrix.columns)), frame[sorted(read.columns)]
    values = matrix.to_numpy(dtype=np.float64)
    units = _units(terms, values)
    _require_estimable(formula, terms, values @ units)
    columns_of: dict[str, list[str]] = {}
    for term, place in spec.term_slices.items():
        columns = {f.expr for f in term.factors if f.eval_method is Factor.EvalMethod.LOOKUP}
        called = [f.expr for f in term.factors if f.eval_method is Factor.EvalMethod.PYTHON]
        columns |= {column for code in called for column, _ in _names_in(formula, code)}
        columns_of |= dict.fromkeys(map(str, (term, *spec.column_names[place])), sorted(columns))
    return Covariates(
        read,
        spec,
        used,
        names=tuple(name for name in names if name not in left_out),
        left_out=left_out,
        terms=terms,
        matrix=values,
        units=units,
        factors={
            str(term): tuple(range(place.start, place.stop))
            for term, place in spec.term_slices.items()
            if place.stop - place.start > 1
        },
        columns_of=columns_of,
        **_patterns(read, spec, used, values),
        comparisons=_comparisons(read, spec, used),
    )


def require_columns(read: ReadFormula, persons: pd.DataFrame | None) -> list[str]:
    """The columns of the table of persons; raises where the formula names others."""
    columns = [] if persons is None else list(map(str, persons.columns))
    unknown = sorted(set(read.columns) - set(columns))
    if unknown:
        what = f"formula {_shown(read.text)} names {first_few(unknown)}"
        raise ValueError(f"{what}, which persons do not have: the columns are {', '.join(columns) or 'none'}")
    return columns


def _comparable(
    read: ReadFormula, persons: pd.DataFrame | None, names: tuple[str, ...], reference: Mapping[str, str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows of persons who can be compared, in the order of `names`, and why the others cannot."""
    strange = sorted(set(reference) - set(read.columns))
    if strange:
        raise ValueError(f"reference must name a column of the formula {_shown(read.text)}, received {first_few(strange)}")
    columns = require_columns(read, persons)
    if persons is None or not read.columns:
        return pd.DataFrame(index=range(len(names))), {}
    if "expert" not in columns:
        raise ValueError(f"persons must have the column expert, received {', '.join(columns)}")
    labels = [label(value, "column expert of persons") for value in persons["expert"]]
    twice = next((name for name, number in Counter(labels).items() if number > 1), None)
    if twice is not None:
        raise ValueError(f"persons must have one row for each expert, received {twice} twice: delete or rename a row")
    frame = persons.set_axis(labels, axis=0)
    listed, known = set(labels), set(names)
    left_out = {name: "no row in the table of persons" for name in names if name not in listed}
    left_out |= {name: "no decisions" for name in labels if name not in known}
    frame = frame.loc[[name for name in names if name in listed]]
    empty = frame[list(read.columns)].isna()
    incomplete = empty.any(axis=1)
    left_out |= {str(name): f"no {' and '.join(empty.columns[row])}" for name, row in empty[incomplete].iterrows()}
    frame = frame[~incomplete]
    _require_numbers_or_groups(read, frame)
    groups = [column for column in read.columns if not read.is_number(frame[column])]
    while alone := {name: column for column in groups for name in frame.index[~frame[column].duplicated(keep=False)]}:
        left_out |= {name: f"the only one of their {column}" for name, column in alone.items()}
        frame = frame.drop(index=list(alone))
    for column in read.columns:
        if not len(frame) and len(names) > 2:
            advice = "Fill in the empty cells, or use a column whose groups have several persons"
            if set(names).isdisjoint(labels):
                advice = "Write the names in column expert as they are in the table of decisions"
            raise ValueError(
                f"persons must be comparable by column {column}, received nobody who can be compared: "
                f"{left_out_words(left_out)}. {advice}"
            )
        if frame[column].nunique() < 2 < len(names):
            why = f", without {left_out_words(left_out)}" if left_out else ": leave it out"
            raise ValueError(f"column {column} of persons must vary, received {frame[column].iloc[0]} for everyone{why}")
    leveled = {column: _with_levels(read, frame[column], reference.get(column)) for column in read.columns}
    return frame.assign(**leveled).reset_index(drop=True), left_out


def left_out_words(left_out: Mapping[str, str], most: int = 5) -> str:
    """Who is left out and why, in words; of more than `most` with one reason, the first and how many more."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    parts = []
    for reason, who in reasons.items():
        shown = ", ".join(who[:most]) + (f" and {len(who) - most} more" if len(who) > most else "")
        parts.append(f"{shown} ({reason})")
    return "; ".join(parts)


def _require_numbers_or_groups(read: ReadFormula, frame: pd.DataFrame) -> None:
    """A column in which most cells are numbers and some are not is no column of groups, but one with slips."""
    for column in read.columns:
        cells = frame[column] if frame[column].dtype == object else ()  # cells of other columns are of one kind
        if any(isinstance(cell, list | tuple | dict | set | np.ndarray | bytes) for cell in cells):
            raise ValueError(f"column {column} of persons must hold text or numbers, received bytes or nested values")
        if column not in {*read.grouped, "expert"} and not pd.api.types.is_numeric_dtype(frame[column]):
            slips = frame[column][pd.to_numeric(frame[column].astype(str), errors="coerce").isna()]
            if 0 < len(slips) < len(frame) / 2:
                raise ValueError(
                    f"column {column} of persons must hold numbers, as for most, received {slips.iloc[0]!r} for "
                    f"{slips.index[0]}: correct it or leave the cell empty; if these are groups, write C({column}) in the formula"
                )


def _with_levels(read: ReadFormula, values: pd.Series[Any], first: str | None) -> pd.Series[Any]:
    """A column of groups with the levels that occur in it, the one to compare with first; other columns as they are."""
    column = values.name
    if first is None:
        return values.cat.remove_unused_categories() if isinstance(values.dtype, pd.CategoricalDtype) else values
    if read.is_number(values):
        raise ValueError(
            f"reference must name a column of groups, received {column}, which holds numbers: if these are groups, write "
            f"C({column}) in the formula; if not, leave the reference out"
        )
    levels = list(pd.Categorical(values).categories)
    found = [level for level in levels if label(level, "reference") == label(first, "reference")]
    if not found:
        raise ValueError(f"reference of {column} must be one of {first_few(list(map(str, levels)))}, received {first}")
    return values.astype(pd.CategoricalDtype([*found, *(level for level in levels if level not in found)]))


def _units(terms: tuple[str, ...], values: Floats) -> Floats:
    """T of `Covariates`.

    Raises:
        ValueError: for numbers that no unit makes usable.
    """
    if not np.isfinite(values).all():
        wrong = terms[int(np.argmax(~np.isfinite(values).all(axis=0)))]
        raise ValueError(
            f"covariates must be finite, received a NaN or infinity in {wrong}: look in this column for an infinite number, or "
            "one without a logarithm or root (0 or below), and correct it or leave its cell empty"
        )
    largest = np.abs(values).max(axis=0, initial=0.0)
    for term, size in zip(terms, largest, strict=True):
        if size and not 1e-100 < size < 1e100:
            raise ValueError(
                f"covariates must be neither above 1e100 nor all below 1e-100, received {size:g} in {term}: correct this number, "
                "or use another unit"
            )
    units = np.eye(len(terms))
    if "Intercept" in terms:
        first, others = terms.index("Intercept"), np.array([term != "Intercept" for term in terms])
        units[first, others] = -values[:, others].mean(axis=0)
    sizes = np.abs(values @ units).max(axis=0, initial=0.0)
    return units / np.where(sizes > 0, sizes, 1.0)


def least_persons(terms: int) -> int:
    """How many persons so many terms need: with fewer, nothing says how much persons differ."""
    return terms + 2


def _require_estimable(formula: str, terms: tuple[str, ...], values: Floats) -> None:
    n, p = values.shape
    if not p:
        raise ValueError(f"formula must have at least one term, received {formula!r}: use ~ 1 where there is no covariate")
    if n < least_persons(p):
        raise ValueError(
            f"{p} terms need at least {least_persons(p)} persons, received {n}: use fewer terms, "
            "join small groups, or add persons"
        )
    triangle = np.linalg.qr(values).R  # its columns have the ranks of those of X, and are short
    for last in range(1, p):
        if np.linalg.matrix_rank(triangle[:, : last + 1], tol=RANK_TOLERANCE * n) <= last:
            raise ValueError(
                f"the term {terms[last]} must add something to {first_few(terms[:last])}, received a combination of them: "
                "leave it out"
            )


def _patterns(read: ReadFormula, spec: ModelSpec, used: pd.DataFrame, values: Floats) -> dict[str, Any]:
    """The combinations of groups that occur, in order, with numbers at their mean, and whose each person is."""
    if not len(used.columns):
        return {"patterns": ("everyone",), "pattern_rows": values[:1], "groups": np.zeros(len(values), dtype=np.int64)}
    means = {column: float(used[column].mean()) for column in used.columns if read.is_number(used[column])}
    kinds = [column for column in used.columns if column not in means]
    codes: Ints = np.zeros(len(used), dtype=np.int64)  # of the combination of all columns so far
    for column in kinds:
        code, levels = pd.factorize(used[column])
        codes = np.unique(codes * len(levels) + code, return_inverse=True)[1]
    first = np.unique(codes, return_index=True)[1]
    keys = [tuple(map(str, row)) for row in used[kinds].iloc[first].itertuples(index=False)]
    distinct = sorted(set(keys))
    groups = np.array([distinct.index(key) for key in keys])[codes]
    typical = used.iloc[np.unique(groups, return_index=True)[1]].assign(**means)
    at_mean = [f"{column} = {mean:.4g}" for column, mean in means.items()]
    names = (", ".join([*(f"{c} = {v}" for c, v in zip(kinds, key, strict=True)), *at_mean]) for key in distinct)
    rows = read.evaluate(spec, typical).to_numpy(dtype=np.float64)
    return {"patterns": tuple(names), "pattern_rows": rows, "groups": groups}


def _comparisons(read: ReadFormula, spec: ModelSpec, used: pd.DataFrame) -> tuple[Comparison, ...]:
    """What `Covariates` says of them."""
    numbers = [column for column in used.columns if read.is_number(used[column])]
    typical = used.assign(**{column: float(used[column].mean()) for column in numbers}).drop_duplicates()
    found = []
    for column in read.columns:
        values = used[column]
        if column in numbers:
            low, high = values.quantile([0.25, 0.75])
            levels: list[Any] = [low, high] if low < high else [float(values.min()), float(values.max())]
            names = tuple(f"{level:.4g}" for level in levels)
        else:
            levels = list(pd.Categorical(values).categories)
            names = tuple(map(str, levels))
        others = typical.drop_duplicates([c for c in used.columns if c != column]) if len(used.columns) > 1 else typical.iloc[:1]
        alike = [others.assign(**{column: pd.Series(level, others.index).astype(typical[column].dtype)}) for level in levels]
        rows = read.evaluate(spec, pd.concat(alike)).to_numpy(dtype=np.float64).reshape(len(levels), len(others), -1)
        found.append(Comparison(column, column in numbers, names, rows.mean(axis=1)))
    return tuple(found)
