"""Covariates of people and conditions of their episodes: tables and a formula, as in R, become the design matrices X and Z.

The terms are those of the `formulaic` package: `~ group + age` has the columns `Intercept`, `group[T.b]` and `age`, where the
first group in the order of the alphabet, or the one that `reference` names, is the one the others are compared with. `~ 1`,
without covariates, has one column.

*Cells.* A column of the formula is one of the table of people, or a condition: a column that is known for each episode. The
decisions of a person under one combination of the conditions that the formula uses are a cell. X `(m,p)` and Z `(m,q)` have one
row per cell j of person i, and `η_ij = X_ij b + Z_ij u_i`, where u_i is the person's own. Without conditions people are the
cells. A condition under which nobody was seen at two values says no more than a covariate of people, and is taken for one.

*What differs between people* is written as in R: `(1 | expert)` says that people have levels of their own, and `(noise |
expert)` that the change with noise differs between them as well. Without it `(1 | expert)` is meant. Z is what stands before the
bar. Σ, the covariance of u, can be told from the cells only if each of its entries changes the covariance `Z_i Σ Z_iᵀ` of some
person's cells: that is, if `Σ_i H_i ⊗ H_i` with `H_i = Z_iᵀZ_i` has an inverse among symmetric matrices.

`formulaic` runs what looks like a call in a formula as Python, some of it while it parses. A formula may come from anyone, so
`read_formula` looks at its parts first, and hands on only those that are made of columns, numbers, operators and the functions
of `FUNCTIONS`. The part with a bar is found among the tokens of `formulaic`, and both parts are formulas of their own.

People who cannot be compared are left out, as most programs of statistics do, and named: those without a row in the table or
without a value of a covariate, and those who are alone in their group, of which nothing says how much its people differ.
Decisions under an unknown condition are left out as well, and counted.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from multihorizon.checks import RANK_TOLERANCE, Bools, Floats, Ints, first_few, label
from multihorizon.problem import Problem
from multihorizon.words import count, decimals, in_words, significant

if TYPE_CHECKING:
    from formulaic import ModelSpec, SimpleFormula
    from formulaic.parser.types import ASTNode, Token

#: What to do with people who cannot be compared.
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
        terms: those of X, as `formulaic` has them.
        random: those of Z, which stand before the bar.
        columns: of the tables that it uses, in the order in which it names them.
        grouped: those of them that it uses as groups, whatever they hold: `C(site)`.
        compared: those of them that X uses.
    """

    text: str
    terms: SimpleFormula
    random: SimpleFormula
    columns: tuple[str, ...]
    grouped: frozenset[str]
    compared: frozenset[str]

    def is_number(self, values: pd.Series) -> bool:
        """Return whether a column holds numbers, and not the names of groups."""
        number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        return values.name not in self.grouped and bool(number)

    def evaluate(self, spec: SimpleFormula | ModelSpec, frame: pd.DataFrame) -> Any:
        """Return terms with the values of these people; what a function cannot do with them is said in one sentence."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error", _formulaic().errors.DataMismatchWarning)
                return spec.get_model_matrix(frame, na_action="ignore", output="pandas", context={"sqrt": np.sqrt})
        except Exception as error:  # of functions with values that they were not made for
            reason = _reason(error)
            text = [c for c in self.columns if not pd.api.types.is_numeric_dtype(frame[c])]
            if text and "TypeError" in reason:
                reason = f"functions such as log need numbers, got text in {first_few(text)}"
            raise ValueError(f"formula {_shown(self.text)} cannot be used: {reason}") from error

    def rows(self, spec: ModelSpec, frame: pd.DataFrame) -> Floats:
        """Return the rows of X or Z, as numbers, that belong to rows of a table."""
        rows: Floats = self.evaluate(spec, frame).to_numpy(dtype=np.float64)
        return rows


def read_formula(text: str) -> ReadFormula:
    """Return the formula, of which nothing was run.

    Raises:
        ValueError: if it is no formula, has a left side, is made of something that may not be in it, has too many terms, or says
            what differs between people in a way that is not known.
    """
    library = _formulaic()
    parts = []
    kinds = library.parser.types.Token.Kind
    for part in _fixed_and_random(text):
        columns: dict[str, None] = {}
        grouped: set[str] = set()
        tokens = _parsed(text, partial(_tokens, part))
        if len(tokens) > 1000:  # the parser goes deeper with every one of them
            raise ValueError(f"formula must have at most 500 terms, got more in {_shown(text)}")
        for token in tokens:
            if token.token == ".":
                raise ValueError(f"formula must name its columns, got . in {_shown(text)}")
            if token.kind is kinds.NAME:
                columns[token.token] = None
            if token.kind is kinds.PYTHON:
                for column, in_groups in _names_in(text, token.token):
                    columns[column] = None
                    grouped |= {column} if in_groups else set()
        parser = library.parser.DefaultFormulaParser()
        if _most_terms(_parsed(text, partial(parser.get_ast, part))) > 1000:
            raise ValueError(f"formula must have at most 1000 terms, got more in {_shown(text)}")
        terms = _parsed(text, partial(library.Formula, part, _parser=parser))
        if not isinstance(terms, library.SimpleFormula):
            raise ValueError(f"formula must have terms only to the right of ~, got {_shown(text)}")
        parts.append((terms, columns, grouped))
    (fixed, first, grouped), (random, second, also) = parts
    return ReadFormula(text, fixed, random, tuple({**first, **second}), frozenset(grouped | also), frozenset(first))


def _formulaic() -> Any:
    """Return the library of formulas, loaded where there is one."""
    import formulaic  # noqa: PLC0415  it takes longer to import than a small fit takes
    import formulaic.parser.algos.sanitize_tokens  # noqa: PLC0415

    return formulaic


def _tokens(text: str) -> list[Token]:
    return list(_formulaic().parser.algos.tokenize(text))


def _fixed_and_random(text: str) -> tuple[str, str]:
    """Return the formula without the part that has a bar, and what stands in that part before the bar; `~ 1` where there is none.

    Raises:
        ValueError: for a bar in any other place than `( … | expert)`, added to the rest.
    """
    tokens = _parsed(text, lambda: _tokens(text))
    kinds = _formulaic().parser.types.Token.Kind
    bars = [i for i, token in enumerate(tokens) if token.kind is kinds.OPERATOR and "|" in token.token]
    if not bars:
        return text, "~ 1"

    def wrong(why: str) -> ValueError:
        return ValueError(
            f"formula must say what differs between people as in '~ noise + (noise | expert)': {why} in {_shown(text)}"
        )

    if any(tokens[i].token != "|" for i in bars):
        raise wrong(f"got {next(tokens[i].token for i in bars if tokens[i].token != '|')}, where one bar is known,")
    if len(bars) > 1:
        raise wrong("got more than one bar")
    bar = bars[0]
    opened = list[int]()
    for i, token in enumerate(tokens[:bar]):
        if token.kind is kinds.CONTEXT:
            opened = [*opened, i] if token.token in "([{" else opened[:-1]
    if not opened:
        raise wrong("got a bar outside parentheses")
    if len(opened) > 1 or tokens[opened[0]].token != "(":
        raise wrong("got a bar inside other parentheses")
    start, right = opened[0], tokens[bar + 1 :]
    if not (len(right) > 1 and right[0].kind is kinds.NAME and right[1].token == ")"):
        raise wrong("got something else than expert after the bar")
    if right[0].token != "expert":
        raise wrong(f"got {right[0].token} after the bar, where only expert is known,")
    if start + 1 == bar:
        raise wrong("got nothing before the bar")
    before, after = tokens[:start], tokens[bar + 3 :]
    joined = (not before or before[-1].token in ("~", "+")) and (not after or after[0].token in ("+", "-"))
    if not joined:
        raise wrong("got parentheses with a bar that are not added to the rest by +")
    if before and before[-1].token == "+":
        before = before[:-1]
    elif after and after[0].token == "+":
        after = after[1:]
    ends = 0 if not before else tokens[len(before)].source_start, len(text) if not after else after[0].source_start
    fixed = text[: ends[0]] + text[ends[1] :]
    left = text[tokens[start].source_start + 1 : tokens[bar].source_start]
    empty = all(token.token == "~" for token in (*before, *after))
    return f"{fixed} 1" if empty else fixed, f"~ {left}"


def _shown(text: str) -> str:
    """Return the text between quotes, or its beginning: formulas come from anywhere."""
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def _reason(error: Exception) -> str:
    """Return the first line of what another package says, without the colours that it has for terminals."""
    return re.sub(r"\x1b\[[\d;]*m|[⧛⧚]", "", str(error)).split("\n")[0] or type(error).__name__


def _parsed(text: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as error:  # of a parser that was made for formulas that are right
        why = _reason(error).rstrip(".")
        raise ValueError(f"formula {_shown(text)} must join columns by +, : or *, as in '~ group + age': {why}") from error


def _names_in(text: str, code: str) -> Iterator[tuple[str, bool]]:
    """Yield the columns that a call names, and whether as groups; raises for all that may not be in a formula.

    What is looked at is the text that `formulaic` will run: the same functions have put names for those between backticks.
    """
    aliases: dict[str, str] = {}
    library = _formulaic()
    sanitized = library.parser.algos.sanitize_tokens.sanitize_python_code
    run = _parsed(text, lambda: library.utils.code.sanitize_variable_names(sanitized(code), {}, aliases))
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
    """Return whether the operation ends: powers of numbers, and texts and lists times one, can be made to fill the memory."""
    if isinstance(node.op, ast.Pow):
        power = node.right.value if isinstance(node.right, ast.Constant) else None
        with_column = any(isinstance(part, ast.Name) for part in ast.walk(node.left))
        return isinstance(power, int | float) and power <= 100 and with_column
    parts = (node.left, node.right)
    texts = any(isinstance(part, ast.List | ast.Tuple) or isinstance(getattr(part, "value", 0), str) for part in parts)
    return isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div) and not texts


def _may_be_called(node: ast.Call, aliases: dict[str, str]) -> bool:
    """Return whether this function may be called with these arguments, and makes no more columns than anyone needs."""
    name = ast.unparse(node.func)
    given = {keyword.arg or "_": keyword.value for keyword in node.keywords}
    sizes = []
    if name in ("poly", "bs", "cr", "cs", "cc"):  # these make several columns of one
        sizes = [*node.args[1:2], *(given[size] for size in ("df", "degree") if size in given)]
    small = all(isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value <= 100 for size in sizes)
    allowed = name in (*FUNCTIONS, *CODINGS) and name not in aliases
    return allowed and small and not any(keyword.startswith("_") for keyword in given)


def _most_terms(node: ASTNode | Token | None) -> float:
    """Return at least as many as the terms that operators make of their parts: `**` and `*` make many of few."""
    if not isinstance(node, _formulaic().parser.types.ASTNode):
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
    """Typical people who differ in one column alone: all its groups, or the lower and the upper quartile of its numbers.

    Other numbers are at their mean, and other groups count equally.

    Attributes:
        column: the column.
        is_number: whether it holds numbers.
        is_condition: whether the same people were seen under several of its values.
        levels: the names of its groups, first the one that others are compared with, or both quartiles.
        rows: the rows of X `(k,p)` of these people.
    """

    column: str
    is_number: bool
    is_condition: bool
    levels: tuple[str, ...]
    rows: Floats


@dataclass(frozen=True, eq=False)
class Covariates:
    """The design of a study of n people in m cells: without conditions, people are the cells.

    Attributes:
        formula, spec, random_spec: the formula as it was read, and X and Z with the groups and means of these cells.
        frame: the columns that the formula uses, one row per cell.
        conditions: those of them under several values of which the same people were seen.
        names: of the people, in the problem's order.
        left_out: everyone else of the problem or of the table of people, and why.
        owner: whose each cell is `(m,)`, a place in `names`; never decreasing.
        cell: the cell of each row of the problem; −1 where it is left out.
        terms: names of the columns of X.
        matrix: X `(m,p)`.
        units: T `(p,p)`, so that X T has columns of size 1 around 0, whatever the units of the covariates: effects b of X are
            `T β` with β those of X T. A column without the intercept beside it is not moved.
        random_terms: names of the columns of Z.
        random: Z `(m,q)`.
        random_units: V `(q,q)`, so that Z V has a column of ones first, if Z can make one, and other columns with mean square 1
            that are not correlated, nor with the ones: a person's own u is `V v` with v that of Z V.
        typical, typical_random: the rows of X `(n,p)` and Z `(n,q)` of each person on the average of conditions: each level of
            a group counts equally, and numbers are at their mean.
        factors: parts of the formula with several columns, such as a group of three levels, and the places of these columns.
        columns_of: the columns of the tables that each term, and each of `factors`, is made of.
        patterns: a name for each pattern of the covariates: every combination of groups that occurs, with numbers at their mean.
        pattern_rows, pattern_random: the rows of X `(k,p)` and Z `(k,q)` that belong to them.
        groups: which of the patterns each cell's groups are `(m,)`.
        person_groups: the name of each person's pattern where conditions do not count `(n,)`.
        persons: the columns that are no conditions, one row per person.
        comparisons: for each column of X, typical people who differ in it alone.
        references: for columns of groups whose terms compare with one group, that group.
        cautions: what must be said of the cells, in sentences.
    """

    formula: ReadFormula
    spec: ModelSpec
    random_spec: ModelSpec
    frame: pd.DataFrame
    conditions: tuple[str, ...]
    names: tuple[str, ...]
    left_out: dict[str, str]
    owner: Ints
    cell: Ints
    terms: tuple[str, ...]
    matrix: Floats
    units: Floats
    random_terms: tuple[str, ...]
    random: Floats
    random_units: Floats
    typical: Floats
    typical_random: Floats
    factors: dict[str, tuple[int, ...]]
    columns_of: dict[str, list[str]]
    patterns: tuple[str, ...]
    pattern_rows: Floats
    pattern_random: Floats
    groups: Ints
    person_groups: NDArray[np.object_]
    persons: pd.DataFrame
    comparisons: tuple[Comparison, ...]
    references: dict[str, str]
    cautions: tuple[str, ...]

    def compared(self, problem: Problem) -> Problem:
        """Return the problem of the people who can be compared."""
        place = {name: i for i, name in enumerate(problem.names)}
        return problem.some(np.array([place[name] for name in self.names], dtype=np.int64))

    def gathered(self, problem: Problem) -> Problem:
        """Return the people of the problem who can be compared, with one row of counts for each cell."""
        place = {name: i for i, name in enumerate(problem.names)}
        kept = np.array([place[name] for name in self.names])
        if not self.conditions:
            return problem.by_person().some(kept)
        assert problem.cells.owner is not None
        cell = self.cell[np.isin(problem.cells.owner, kept)]
        return problem.some(kept).gathered(cell, len(self.owner), self.owner, self.frame[list(self.conditions)])

    def rows_of(self, new: pd.DataFrame) -> tuple[Floats, Floats]:
        """Return the rows of X and Z of people who were not in the study, under conditions of it.

        Raises:
            ValueError: where a covariate is missing, or a group did not occur in the study.
        """
        for column in self.formula.columns:
            if column not in new.columns or new[column].isna().any():
                raise ValueError(f"new people must have a value in column {column}, got none")
            of_study = set(map(str, self.frame[column]))
            strange = set(map(str, new[column])) - of_study
            if strange and not self.formula.is_number(self.frame[column]):
                raise ValueError(
                    f"column {column} of new people must have values of the study ({first_few(sorted(of_study))}), "
                    f"got {first_few(sorted(strange))}"
                )
        return self.formula.rows(self.spec, new), self.formula.rows(self.random_spec, new)


def read_covariates(
    formula: str,
    persons: pd.DataFrame | None,
    problem: Problem,
    missing: Missing = "drop",
    reference: Mapping[str, str] | None = None,
) -> Covariates:
    """Return the design of a study of the people of a problem, in its order, under its conditions.

    Those who cannot be compared are left out if `missing` is "drop". `reference` names for some columns the group that others are
    compared with.

    Raises:
        ValueError: where the formula cannot be used with the tables, or people or decisions cannot be compared and `missing` is
            "fail".
    """
    read = read_formula(formula)
    seen = _comparable(read, persons, problem, missing, reference or {})
    frame = seen.frame
    conditions = seen.conditions
    owner = seen.owner
    n = len(seen.names)
    matrix, random = (read.evaluate(terms, frame) for terms in (read.terms, read.random))
    spec, random_spec = matrix.model_spec, random.model_spec
    terms, random_terms = (tuple(map(str, each.columns)) for each in (matrix, random))
    values, random_values = (each.to_numpy(dtype=np.float64) for each in (matrix, random))
    columns_of: dict[str, list[str]] = {}
    methods = _formulaic().parser.types.Factor.EvalMethod
    for each in (random_spec, spec):
        for term, place in each.term_slices.items():
            columns = {f.expr for f in term.factors if f.eval_method is methods.LOOKUP}
            called = [f.expr for f in term.factors if f.eval_method is methods.PYTHON]
            columns |= {column for code in called for column, _ in _names_in(formula, code)}
            columns_of |= dict.fromkeys(map(str, (term, *each.column_names[place])), sorted(columns))
    units = _units(terms, values)
    of_persons = sum(set(columns_of[term]).isdisjoint(conditions) for term in terms)
    _require_estimable(formula, terms, values @ units, n, of_persons)
    first = np.searchsorted(owner, np.arange(n))
    people = frame.drop(columns=list(conditions)).iloc[first]
    means = {
        column: float((frame if column in conditions else people)[column].mean())
        for column in frame.columns
        if read.is_number(frame[column])
    }
    patterns, like, groups = _patterns(frame, means)
    random_units = _random_units(read, random_terms, random_values, groups)
    if random_terms != ("Intercept",):
        _require_slopes(read, {term: columns_of[term] for term in random_terms}, random_values @ random_units, owner)
    typical, typical_random = values, random_values
    if conditions:
        typical, typical_random = (_on_average(read, each, frame, conditions, means, first) for each in (spec, random_spec))
    names, _, whose = _patterns(people, {column: mean for column, mean in means.items() if column not in conditions})
    return Covariates(
        read,
        spec,
        random_spec,
        frame,
        conditions,
        names=seen.names,
        left_out=seen.left_out,
        owner=owner,
        cell=seen.cell,
        terms=terms,
        matrix=values,
        units=units,
        random_terms=random_terms,
        random=random_values,
        random_units=random_units,
        typical=typical,
        typical_random=typical_random,
        factors={
            str(term): tuple(range(place.start, place.stop))
            for term, place in spec.term_slices.items()
            if place.stop - place.start > 1
        },
        columns_of=columns_of,
        patterns=patterns,
        pattern_rows=read.rows(spec, like),
        pattern_random=read.rows(random_spec, like),
        groups=groups,
        person_groups=np.array(names, dtype=object)[whose],
        persons=people.reset_index(drop=True),
        comparisons=_comparisons(read, spec, frame, conditions, means, first),
        references=_references(terms, columns_of, frame.drop(columns=list(means))),
        cautions=seen.cautions,
    )


def require_columns(read: ReadFormula, persons: pd.DataFrame | None, conditions: Iterable[object] = ()) -> list[str]:
    """Return the columns of the table of people; raises where the formula names others than these and the conditions."""
    columns = [] if persons is None else list(map(str, persons.columns))
    others = list(map(str, conditions))
    both = [column for column in read.columns if column in columns and column in others]
    if both:
        raise ValueError(f"column {both[0]} must be one of people or one of episodes, got it in both tables: rename one")
    unknown = sorted(set(read.columns) - set(columns) - set(others))
    if unknown:
        what = f"formula {_shown(read.text)} names {first_few(unknown)}"
        who = "neither people nor episodes have"
        listed = f"the columns of people are {', '.join(columns) or 'none'}, and those of episodes {', '.join(others)}"
        if not others:
            who = "people do not have"
            listed = f"the columns are {', '.join(columns) or 'none'}"
            listed += f". If it is a condition of episodes, read the decisions with conditions={unknown[:1]}"
        raise ValueError(f"{what}, which {who}: {listed}")
    return columns


@dataclass(frozen=True, eq=False)
class _Seen:
    """Who can be compared, in which cells: what `Covariates` says of these."""

    names: tuple[str, ...]
    left_out: dict[str, str]
    frame: pd.DataFrame
    conditions: tuple[str, ...]
    owner: Ints
    cell: Ints
    cautions: tuple[str, ...]


def _comparable(
    read: ReadFormula, persons: pd.DataFrame | None, problem: Problem, missing: Missing, reference: Mapping[str, str]
) -> _Seen:
    """Return the people who can be compared, with their cells, and why the others cannot."""
    strange = sorted(set(reference) - set(read.columns))
    if strange:
        raise ValueError(f"reference must name a column of the formula {_shown(read.text)}, got {first_few(strange)}")
    given = problem.conditions
    names = pd.Index(problem.names, dtype=object)
    columns = require_columns(read, persons, () if given is None else given.columns)
    of_persons = [column for column in read.columns if column in columns]
    table = pd.DataFrame(index=names)
    left_out = dict[str, str]()
    if persons is not None and of_persons:
        table, left_out = _of_persons(persons, of_persons, problem.names)
        _require_numbers_or_groups(read, table, "persons")
    # the rows of the problem: whose they are, their conditions, and whether they can be used
    whose: Ints = np.arange(len(names)) if problem.cells.owner is None else problem.cells.owner
    rows = pd.DataFrame(index=range(whose.size))
    if given is not None:
        rows = given[[column for column in read.columns if column not in of_persons]].reset_index(drop=True)
    usable, nowhere, unknown = _with_conditions(problem, whose, rows, _marked(len(names), names.get_indexer(table.index)))
    left_out |= nowhere
    table = table.drop(index=list(nowhere))
    cautions = [f"Left out are {unknown}."] if unknown else []
    if len(rows.columns):
        _require_numbers_or_groups(read, rows[usable].set_axis(names[whose[usable]], axis=0), "episodes")
    first = np.zeros(len(names), dtype=np.int64)  # a row of each person
    first[whose[usable]] = np.flatnonzero(usable)
    for column in rows.columns:
        code = pd.factorize(rows[column])[0]
        if (code == code[first[whose]])[usable].all():  # nobody was seen under two values: it compares people
            there = first[names.get_indexer(table.index)]
            table = table.assign(**{column: rows[column].iloc[there].set_axis(table.index)})
            rows = rows.drop(columns=column)
            cautions.append(f"Nobody was seen under two values of {column}, so different people are compared by it.")
    groups = [column for column in table.columns if not read.is_number(table[column])]
    while alone := {name: column for column in groups for name in table.index[~table[column].duplicated(keep=False)]}:
        left_out |= {name: f"the only one of their {column}" for name, column in alone.items()}
        table = table.drop(index=list(alone))
    if read.columns and not len(table) and len(names) > 2:
        advice = "Fill in the empty cells, or use a column whose groups have several people"
        if set(left_out.values()) <= {"no row in the table of people", "no decisions"}:
            advice = "Write the names in column expert as they are in the table of decisions"
        raise ValueError(
            f"persons must be comparable by column {read.columns[0]}, got nobody who can be compared: "
            f"{left_out_words(left_out)}. {advice}"
        )
    place = np.full(len(names), -1)
    place[names.get_indexer(table.index)] = np.arange(len(table))
    frame, owner, cell = _cells(read, table, rows, np.where(usable, place[whose], -1), reference)
    for column in read.columns:
        if frame[column].nunique() < 2 < len(names):
            of = "persons" if column in columns else "episodes"
            why = f", without {left_out_words(left_out)}" if left_out else ": leave it out"
            raise ValueError(f"column {column} of {of} must vary, got {frame[column].iloc[0]} for everyone{why}")
    if (left_out or unknown) and missing == "fail":
        everyone = "; ".join(text for text in (left_out_words(left_out), unknown) if text)
        raise ValueError(
            f'nobody must be left out with missing="fail", got {everyone}: complete the tables, '
            'or leave them out with missing="drop"'
        )
    conditions = tuple(sorted(rows.columns))
    single = int((np.bincount(owner, minlength=len(table)) == 1).sum()) if conditions else 0
    if single:
        cautions.append(
            f"{single:,} of {len(table):,} people {'was' if single == 1 else 'were'} seen under one condition only, which "
            "tells nothing of changes within people."
        )
    return _Seen(tuple(table.index), left_out, frame[sorted(read.columns)], conditions, owner, cell, tuple(cautions))


def _marked(size: int, places: Ints) -> Bools:
    """Return a mark for each of so many: whether it is at these places."""
    marks = np.zeros(size, dtype=np.bool_)
    marks[places] = True
    return marks


def _with_conditions(problem: Problem, whose: Ints, rows: pd.DataFrame, listed: Bools) -> tuple[Bools, dict[str, str], str]:
    """Return which rows of listed people `(n,)` have all conditions; who has none, and why; what others lose, in words."""
    empty = rows.isna().to_numpy()
    usable = listed[whose] & ~empty.any(axis=1)
    seen = _marked(listed.size, whose[usable])
    lacking = np.zeros((listed.size, empty.shape[1]), dtype=np.bool_)
    np.logical_or.at(lacking, whose, empty)
    nowhere = {
        problem.names[i]: f"no {' and '.join(rows.columns[np.flatnonzero(lacking[i])]) or 'decisions'}"
        for i in np.flatnonzero(listed & ~seen).tolist()
    }
    lost = np.flatnonzero(seen[whose] & ~usable)
    unknown = ""
    if lost.size:
        decisions = sum(float(task.counts[lost].sum()) for task in problem.tasks)
        without = " or ".join(rows.columns[np.flatnonzero(empty[lost].any(axis=0))])
        unknown = f"{decimals(decisions, 0)} decisions of {count(np.unique(whose[lost]).size, 'person')} without {without}"
    return usable, nowhere, unknown


def _cells(
    read: ReadFormula, table: pd.DataFrame, rows: pd.DataFrame, place: Ints, reference: Mapping[str, str]
) -> tuple[pd.DataFrame, Ints, Ints]:
    """Return the columns of each cell, its person's place in the table `(m,)`, and the cell of each row; −1 where it has none.

    `place` is that of each row's person, or −1. Cells are in the order of people, and those of one person in the order of the
    conditions.
    """
    used = np.flatnonzero(place >= 0)
    table = table.assign(**{column: _with_levels(read, table[column], reference.get(str(column))) for column in table.columns})
    met = pd.DataFrame({column: _with_levels(read, rows[column].iloc[used], reference.get(column)) for column in rows.columns})
    key: Ints = place[used]
    for column in rows.columns:
        levels = pd.Categorical(met[column])
        key = np.unique(key * len(levels.categories) + levels.codes, return_inverse=True)[1]
    _, start, number = np.unique(key, return_index=True, return_inverse=True)
    owner = place[used[start]]
    cell = np.full(place.size, -1)
    cell[used] = number
    frame = table.iloc[owner].reset_index(drop=True)
    return frame.assign(**{column: met[column].iloc[start].reset_index(drop=True) for column in rows.columns}), owner, cell


def _of_persons(persons: pd.DataFrame, used: list[str], names: tuple[str, ...]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the columns that the formula uses, of the people who have all, in the order of `names`; why others have not."""
    if "expert" not in persons.columns:
        raise ValueError(f"persons must have the column expert, got {', '.join(map(str, persons.columns))}")
    labels = [label(value, "column expert of persons") for value in persons["expert"]]
    twice = next((name for name, number in Counter(labels).items() if number > 1), None)
    if twice is not None:
        raise ValueError(f"persons must have one row for each expert, got {twice} twice: delete or rename a row")
    frame = persons[used].set_axis(labels, axis=0)
    listed = set(labels)
    with_decisions = set(names)
    left_out = {name: "no row in the table of people" for name in names if name not in listed}
    left_out |= {name: "no decisions" for name in labels if name not in with_decisions}
    frame = frame.loc[[name for name in names if name in listed]]
    empty = frame.isna()
    incomplete = empty.any(axis=1)
    left_out |= {str(name): f"no {' and '.join(empty.columns[row])}" for name, row in empty[incomplete].iterrows()}
    return frame[~incomplete], left_out


def left_out_words(left_out: Mapping[str, str], most: int = 5) -> str:
    """Return who is left out and why, in words; of more than `most` with one reason, the first and how many more."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    parts = []
    for reason, who in reasons.items():
        shown = ", ".join(who[:most]) + (f" and {len(who) - most} more" if len(who) > most else "")
        parts.append(f"{shown} ({reason})")
    return "; ".join(parts)


def _require_numbers_or_groups(read: ReadFormula, frame: pd.DataFrame, of: str) -> None:
    """Raise for a column in which most cells are numbers and some are not: that is no column of groups, but one with slips."""
    for column in frame.columns:
        cells = frame[column] if frame[column].dtype == object else ()  # cells of other columns are of one kind
        if any(isinstance(cell, list | tuple | dict | set | np.ndarray | bytes) for cell in cells):
            raise ValueError(f"column {column} of {of} must hold text or numbers, got bytes or nested values")
        if column not in {*read.grouped, "expert"} and not pd.api.types.is_numeric_dtype(frame[column]):
            slips = frame[column][pd.to_numeric(frame[column].astype(str), errors="coerce").isna()]
            if 0 < len(slips) < len(frame) / 2:
                raise ValueError(
                    f"column {column} of {of} must hold numbers, as for most, got {slips.iloc[0]!r} for "
                    f"{slips.index[0]}: correct it or leave the cell empty; if these are groups, write C({column}) in the formula"
                )


def _with_levels(read: ReadFormula, values: pd.Series[Any], first: str | None) -> pd.Series[Any]:
    """Return a column of groups with the levels that occur in it, the one to compare with first; other columns as they are."""
    column = values.name
    if first is None:
        return values.cat.remove_unused_categories() if isinstance(values.dtype, pd.CategoricalDtype) else values
    if read.is_number(values):
        raise ValueError(
            f"reference must name a column of groups, got {column}, which holds numbers: if these are groups, write "
            f"C({column}) in the formula; if not, leave the reference out"
        )
    levels = list(pd.Categorical(values).categories)
    reference = [level for level in levels if label(level, "reference") == label(first, "reference")]
    if not reference:
        raise ValueError(f"reference of {column} must be one of {first_few(list(map(str, levels)))}, got {first}")
    return values.astype(pd.CategoricalDtype([*reference, *(level for level in levels if level not in reference)]))


def _require_usable(terms: tuple[str, ...], values: Floats) -> None:
    """Raise for numbers that no unit makes usable."""
    if not np.isfinite(values).all():
        wrong = terms[int(np.argmax(~np.isfinite(values).all(axis=0)))]
        raise ValueError(
            f"covariates must be finite, got a NaN or infinity in {wrong}: look in this column for an infinite number, or "
            "one without a logarithm or root (0 or below), and correct it or leave its cell empty"
        )
    largest = np.abs(values).max(axis=0, initial=0.0)
    for term, size in zip(terms, largest, strict=True):
        if size and not 1e-100 < size < 1e100:
            raise ValueError(
                f"covariates must be neither above 1e100 nor all below 1e-100, got {size:g} in {term}: correct this number, "
                "or use another unit"
            )


def _units(terms: tuple[str, ...], values: Floats) -> Floats:
    """Return T of `Covariates`."""
    _require_usable(terms, values)
    units = np.eye(len(terms))
    if "Intercept" in terms:
        first = terms.index("Intercept")
        others = np.array([term != "Intercept" for term in terms])
        units[first, others] = -values[:, others].mean(axis=0)
    sizes = np.abs(values @ units).max(axis=0, initial=0.0)
    return units / np.where(sizes > 0, sizes, 1.0)


def least_persons(terms: int) -> int:
    """Return how many people so many terms need: with fewer, nothing says how much people differ."""
    return terms + 2


def _require_estimable(formula: str, terms: tuple[str, ...], values: Floats, persons: int, of_persons: int) -> None:
    """Raise where X `(m,p)` has too few people for the terms that are no conditions, too few cells, or a term too many."""
    m, p = values.shape
    if not p:
        raise ValueError(f"formula must have at least one term, got {formula!r}: use ~ 1 where there is no covariate")
    if persons < least_persons(of_persons):
        raise ValueError(
            f"{of_persons} terms need at least {least_persons(of_persons)} people, got {persons}: use fewer terms, "
            "join small groups, or add people"
        )
    if m < least_persons(p):
        raise ValueError(
            f"{p} terms need people under at least {least_persons(p)} conditions in all, got {m}: use fewer terms, "
            "join small groups, or add people"
        )
    _require_independent(terms, values)


def _require_independent(terms: tuple[str, ...], values: Floats) -> None:
    triangle = np.linalg.qr(values).R  # its columns have the ranks of those of X, and are short
    for last in range(1, len(terms)):
        if np.linalg.matrix_rank(triangle[:, : last + 1], tol=RANK_TOLERANCE * len(values)) <= last:
            raise ValueError(
                f"the term {terms[last]} must add something to {first_few(terms[:last])}, got a combination of them: leave it out"
            )


def _random_units(read: ReadFormula, terms: tuple[str, ...], values: Floats, patterns: Ints) -> Floats:
    """Return V of `Covariates`.

    Raises:
        ValueError: for too many terms, none, or one that is a combination of others.
    """
    if not 0 < len(terms) <= 3:
        raise ValueError(
            f"at most 3 terms may differ between people, and at least 1, got {len(terms)} in {_shown(read.text)}: "
            "write (1 | expert), or fewer terms before the bar"
        )
    if terms == ("Intercept",):
        return np.eye(1)
    _require_usable(terms, values)
    m, q = values.shape
    sizes = np.abs(values).max(axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled = values / sizes
    _require_independent(terms, scaled)
    orthogonal, triangle = np.linalg.qr(scaled)
    ones = orthogonal.sum(axis=0)
    by_pattern = np.zeros((int(patterns.max()) + 1, q))
    np.add.at(by_pattern, patterns, orthogonal)
    wanted = [*by_pattern, *triangle.T] if abs(ones @ ones - m) > 1e-8 * m else [ones, *by_pattern, *triangle.T]
    basis = np.zeros((q, 0))
    for each in wanted:
        rest = each - basis @ (basis.T @ each)
        if basis.shape[1] < q and np.linalg.norm(rest) > 1e-7 * np.linalg.norm(each):
            rest -= basis @ (basis.T @ rest)  # again, as the first time leaves a little
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    units: Floats = np.linalg.solve(triangle, basis) * np.sqrt(m) / sizes[:, None]
    return units


def _require_slopes(read: ReadFormula, columns_of: Mapping[str, list[str]], values: Floats, owner: Ints) -> None:
    """Raise where nothing tells how effects of Z V differ between people."""
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    sizes = np.diff(first, append=owner.size)
    inside = values - (np.add.reduceat(values, first) / sizes[:, None])[owner]
    moved = np.unique(owner[np.abs(inside).max(axis=1) > 1e-9]).size
    names = in_words(list(dict.fromkeys(column for columns in columns_of.values() for column in columns)))
    squares = np.add.reduceat(values[:, :, None] * values[:, None, :], first)
    q = values.shape[1]
    pairs = [(a, b) for a in range(q) for b in range(a, q)]
    basis = np.zeros((q, q, len(pairs)))
    for k, (a, b) in enumerate(pairs):
        basis[a, b, k] = basis[b, a, k] = 1.0
    information = np.einsum("ack,nab,ncd,bdl->kl", basis, squares, squares, basis, optimize=True)
    slopes = q - int(np.ptp(values[:, 0]) < 1e-9)
    determined = np.linalg.matrix_rank(information, tol=1e-9 * np.abs(information).max(), hermitian=True) == len(pairs)
    determined &= np.linalg.matrix_rank(inside.T @ inside / len(values), tol=1e-9, hermitian=True) >= slopes
    if moved >= least_persons(1) and determined:
        return
    what = f"nothing tells how the effect of {names} differs between people in {_shown(read.text)}"
    why = "nobody was" if not moved else "too few were" if moved < least_persons(1) else "persons were not"
    enough = "two values of it" if moved < least_persons(1) else "enough combinations of values"
    raise ValueError(f"{what}, as {why} seen under {enough}: write (1 | expert)")


def _on_average(
    read: ReadFormula, spec: ModelSpec, frame: pd.DataFrame, conditions: tuple[str, ...], means: Mapping[str, float], first: Ints
) -> Floats:
    """Return the mean row of each person, whose first cell is `first`, over all levels of conditions; numbers at their mean."""
    numbers = {column: means[column] for column in conditions if column in means}
    groups = [column for column in conditions if column not in means]
    every = list(product(*(pd.Categorical(frame[column]).categories for column in groups)))
    people = frame.iloc[first].assign(**numbers)
    total = np.zeros(())
    for levels in every:
        put = {c: pd.Series(v, people.index).astype(frame[c].dtype) for c, v in zip(groups, levels, strict=True)}
        total = total + read.rows(spec, people.assign(**put))
    return total / len(every)


def _patterns(frame: pd.DataFrame, means: Mapping[str, float]) -> tuple[tuple[str, ...], pd.DataFrame, Ints]:
    """Return names of the combinations of groups that occur, a row for each with numbers at their mean, and each row's."""
    if not len(frame.columns):
        return ("everyone",), frame.iloc[:1], np.zeros(len(frame), dtype=np.int64)
    kinds = [column for column in frame.columns if column not in means]
    codes: Ints = np.zeros(len(frame), dtype=np.int64)  # of the combination of all columns so far
    for column in kinds:
        code, levels = pd.factorize(frame[column])
        codes = np.unique(codes * len(levels) + code, return_inverse=True)[1]
    first = np.unique(codes, return_index=True)[1]
    keys = [tuple(map(str, row)) for row in frame[kinds].iloc[first].itertuples(index=False)]
    distinct = sorted(set(keys))
    groups = np.array([distinct.index(key) for key in keys])[codes]
    like = frame.iloc[np.unique(groups, return_index=True)[1]].assign(**means)
    at_mean = [f"{column} = {significant(mean, 4)}" for column, mean in means.items()]
    names = (", ".join([*(f"{c} = {v}" for c, v in zip(kinds, key, strict=True)), *at_mean]) for key in distinct)
    return tuple(names), like, groups


def _comparisons(
    read: ReadFormula, spec: ModelSpec, frame: pd.DataFrame, conditions: tuple[str, ...], means: Mapping[str, float], first: Ints
) -> tuple[Comparison, ...]:
    """Return what `Covariates` says of them; `first` is the first cell of each person."""
    typical = frame.assign(**means).drop_duplicates()
    comparisons = []
    for column in [column for column in read.columns if column in read.compared]:
        values = frame[column] if column in conditions else frame[column].iloc[first]
        if column in means:
            low, high = values.quantile([0.25, 0.75])
            levels: list[Any] = [low, high] if low < high else [float(values.min()), float(values.max())]
            names = tuple(significant(level, 4) for level in levels)
        else:
            levels = list(pd.Categorical(values).categories)
            names = tuple(map(str, levels))
        others = typical.iloc[:1]
        if len(frame.columns) > 1:
            others = typical.drop_duplicates([c for c in frame.columns if c != column])
        alike = [others.assign(**{column: pd.Series(level, others.index).astype(typical[column].dtype)}) for level in levels]
        rows = read.rows(spec, pd.concat(alike)).reshape(len(levels), len(others), -1)
        comparisons.append(Comparison(column, column in means, column in conditions, names, rows.mean(axis=1)))
    return tuple(comparisons)


def _references(terms: tuple[str, ...], columns_of: Mapping[str, list[str]], groups: pd.DataFrame) -> dict[str, str]:
    """Return the group of each column that has no term of its own, where all others have one that compares with it."""
    references = {}
    for column in groups.columns:
        alone = [term for term in terms if columns_of[term] == [column]]
        levels = list(map(str, pd.Categorical(groups[column]).categories))
        left = [level for level in levels if not any(term.endswith(f"[T.{level}]") for term in alone)]
        if len(left) == 1 < len(levels):
            references[str(column)] = left[0]
    return references
