"""The paper's questions asked of a domain that a reader brings: what is learned, its order, its errors, what is identified."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.domains.base import losses
from multihorizon.paper.claims import Claim, graded, numbers
from multihorizon.paper.report import verdicts_table
from multihorizon.paper.settings import CHOSEN, StudySettings
from multihorizon.parallel import Progress
from multihorizon.report.charts import Badge, Block, Notice, Page, Section, TableBlock
from multihorizon.words import Table, decimals


def load_domain(name: str) -> Domain:
    """The domain `MODULE:NAME`, a `Domain` or a function that makes one; modules in the working folder count.

    Raises:
        ValueError: where there is no such module or name, and where it is no domain.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"the domain must be given as MODULE:NAME, such as my_module:weaning, received {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the domain {name} cannot be loaded: {error}") from error
    finally:
        sys.path.pop(0)
    domain = found() if callable(found) and not isinstance(found, Domain) else found
    if not isinstance(domain, Domain):
        raise ValueError(f"{name} must be a Domain or a function that makes one, received {type(domain).__name__}")
    return domain


def study_domain(domain: Domain, settings: StudySettings, progress: Progress) -> tuple[list[Claim], Table]:
    """The verdicts on one domain, and the table of what each algorithm learns."""
    bound = float(np.abs(domain.reward).max())
    hard, soft = mh.Problem(domain.mdp, domain.hard_experts()), mh.Problem(domain.mdp, domain.soft_experts(CHOSEN.temperature))
    cases: dict[str, tuple[mh.Problem, Any, tuple[float, ...]]] = {
        "MPLP": (hard, mh.MPLP(reward_bound=bound), domain.hard_discounts),
        "NaiveLP": (hard, mh.NaiveLP(reward_bound=bound), domain.hard_discounts),
        "MPMCE": (soft, mh.MPMCE(CHOSEN.temperature), domain.soft_discounts),
        "ClosedForm": (soft, mh.ClosedForm(CHOSEN.temperature), domain.soft_discounts),
    }
    variants, rows, claims = domain.tasks(settings.tasks, settings.seed), [], []
    for number, (name, (problem, solver, true)) in enumerate(cases.items()):
        progress(number / len(cases), name)
        solution = mh.solve(problem, solver, seed=settings.seed)
        learned = np.isfinite(solution.discounts).all() and np.isfinite(solution.reward).all()
        error = float(losses(domain, solution.reward[None], variants)[1].mean()) if learned else np.nan
        seconds = decimals(solution.seconds, 2)
        rows.append((name, numbers(true), numbers(solution.discounts, 3), str(solution.status), decimals(error, 3), seconds))
        if name != "NaiveLP":
            ordered = bool((np.diff(solution.discounts[np.argsort(true)]) > 0).all())
            claim = "The learned discounts have the order of the true ones."
            claims.append(
                Claim(f"Order of discounts, {name}", claim, numbers(solution.discounts, 3), graded([ordered]), solution.message)
            )
    report = mh.identify(soft, CHOSEN.temperature)
    claims.append(
        Claim(
            "Identifiability",
            "Only the true discounts have a reward that explains the experts.",
            report.status,
            graded([report.status == "unique"]),
            report.headline(),
        )
    )
    headers = ("algorithm", "true", "learned", "status", "generalization error (absolute)", "seconds")
    return claims, Table.of(headers, rows, f"What each algorithm learns on {domain.name}")


def write_domain(directory: Path, domain: Domain, claims: list[Claim], table: Table, settings: StudySettings) -> None:
    """`report.html` and `paper.md`: the verdicts as one table, what was learned, and each claim."""
    verdicts = verdicts_table(claims)
    each: list[str | Block] = []
    for claim in claims:
        each += [Badge(f"{claim.topic}: {claim.verdict}"), f"Paper: {claim.claim}", f"Here: {claim.ours}", claim.reason]
    title = f"Multiple planning horizons on {domain.name}"
    sections = [
        Section("Verdicts", [TableBlock(verdicts)]),
        Section("What is learned", [TableBlock(table)]),
        Section("Each claim", each),
    ]
    opening = [Notice("A quick run: few task variants.")] if settings.quick else []
    footer = f"multihorizon {mh.__version__}, seed {settings.seed}, {settings.tasks} task variants."
    Page(title, f"{domain.mdp.n_states} states, {domain.mdp.n_actions} actions.", sections, footer, opening).write(
        directory / "report.html"
    )
    parts = [f"# {title}", verdicts.markdown().rstrip(), table.markdown().rstrip()]
    parts += [f"## {c.topic}: {c.verdict}\n\n* Paper: {c.claim}\n* Here: {c.ours}\n* Why: {c.reason}" for c in claims]
    (directory / "paper.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
