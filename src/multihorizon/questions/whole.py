"""A fit as a whole: the questions that a reader asks in turn, the answers, and all of it as tables and as `result.json`.

Every number of an `Analysis` is computed once, and all words follow from the numbers. Where a result must not be used, that comes
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from multihorizon.data.dynamics import untaken_actions
from multihorizon.questions import differences, fit, horizons
from multihorizon.questions.differences import difference_words, population_words
from multihorizon.questions.fit import notes_of, shared_goal, warnings_of
from multihorizon.questions.fitted import Fitted
from multihorizon.questions.goal_comparison import deviation_words
from multihorizon.questions.horizons import identifiability
from multihorizon.questions.people import People
from multihorizon.result import Result, draw_rows, package_version
from multihorizon.solution import DecisionEvidence
from multihorizon.words import LEVEL, VAGUE_WIDTH, Finding, Table, in_words, p_text, percent, without_empty

if TYPE_CHECKING:
    pass


#: What is asked of a fit: each may rest on the answers before it, and is None where it does not arise. A question is added here.
QUESTIONS: dict[str, Callable[[Fitted, Mapping[str, Finding]], Finding | None]] = {
    "fit": fit.model_fit,
    "goals": shared_goal,
    "state reward": fit.depends_on_states,
    "identified": identifiability,
    "horizons": horizons.look_ahead,
    "differences": differences.differences,
}
#: The order in which a reader asks.
READING_ORDER = ("differences", "horizons", "identified", "fit", "goals", "state reward")


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis(Fitted, Result):
    """What `analyse` found: the numbers of the fit and of each analysis (`Fitted`), and the words that follow from them."""

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """The answers to `QUESTIONS`, in the order in which a reader asks."""
        answers: dict[str, Finding] = {}
        for name, question in QUESTIONS.items():
            finding = question(self, answers)
            if finding is not None:
                answers[name] = finding
        return {name: answers[name] for name in READING_ORDER if name in answers}

    @property
    def fit(self) -> Finding:
        """Does the model fit?"""
        return self.findings["fit"]

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return [text for text in warnings_of(self, self.findings) if text] + self.notes

    @cached_property
    def notes(self) -> list[str]:
        """Of the warnings those that leave the numbers as they are: what was not tested, and penalties."""
        return [text for text in notes_of(self) if text]

    @cached_property
    def notices(self) -> tuple[list[str], list[str]]:
        """The warnings before the answer, and those after it. The answer itself begins with why no number may be used."""
        if self.withheld:
            return [], self.warnings[1:]
        return [text for text in self.warnings if text not in self.notes], self.notes

    @property
    def verdicts(self) -> tuple[Finding, ...]:
        """What is found of the fit; of a population in which nobody is fitted alone, first whether discounts differ in it."""
        skipped = () if self.people is not None else ("differences",)
        return tuple(finding for name, finding in self.findings.items() if name not in skipped)

    @cached_property
    def about_deviations(self) -> str:
        """What the reader must know of the model beside the numbers; empty where there is one reward for all."""
        if self.deviations is None:
            return ""
        words = deviation_words(self.deviations)
        if self.deviations.given:
            return f"Goals are taken to be shared nearly, as was asked for: {words}."
        nearly = self.goals is not None and self.goals.nearly
        first = "The experts nearly share one goal" if nearly else "The experts do not share one reward"
        one = f"one reward for all is rejected (p {p_text(self.deviations.p_shared)})"
        return f"{first}: {one}, and {words}. Discounts and intervals allow for that; ask for one reward with deviations 0."

    @cached_property
    def answer(self) -> str:
        """The answer to what was asked, in a sentence or two: what terminal, report and `result.json` open with.

        Of a population it is whether discounts differ with its covariates, else who looks how far ahead. Where numbers must not
        be used, that comes first.
        """
        differ = [] if self.population is None else difference_words(self.population, self.horizon)
        if self.withheld and self.population is not None and self.people is None:
            return " ".join([self.warnings[0], "The comparison of persons is a fit of its own:", *differ])
        if self.withheld:
            return self.warnings[0]
        shape = [] if self.lookahead is None else [self.lookahead.sentences()]
        nearly = [self.about_deviations] if self.about_deviations else []
        if self.population is None:
            return " ".join([*shape, self.findings["horizons"].reasons, *nearly])
        return " ".join([*differ, *shape, *nearly])

    @cached_property
    def headline(self) -> str:
        """The opening paragraph: the answer to what was asked, who looks how far, whether the data can tell, whether the model
        fits."""
        if self.people is not None:
            return self._headline_of_people(self.people)
        look, identified = self.findings["horizons"], self.findings["identified"]
        if self.withheld:
            return " ".join([self.answer, *self.warnings[1:], identified.reasons, self.fit.reasons])
        horizons_too = [] if self.population is None else [look.reasons]
        return " ".join([*self.warnings, self.answer, *horizons_too, identified.reasons, self.fit.reasons])

    def _headline_of_people(self, people: People) -> str:
        differ = self.findings.get("differences")
        if self.withheld:
            types = [] if differ is None or people.population.types is None else [differ.reasons]
            return " ".join([*types, *self.warnings, *people.absent])
        words = [] if differ is not None else [self.answer, *population_words(people.solution, self.horizon)]
        return " ".join([*self.warnings, *people.absent, *words, *(finding.reasons for finding in self.verdicts)])

    @property
    def advice(self) -> list[str]:
        """What to collect next; nothing where nobody is fitted alone."""
        advice: list[str] = self.findings["identified"].content.get("collect_next", [])
        return advice

    def sentences(self) -> str:
        """Return the opening paragraph."""
        return self.headline

    def _facts(self) -> dict[str, Any]:
        solution, evidence = self.solution, DecisionEvidence.of(self.solution)
        facts: dict[str, Any] = {"solver": solution.solver, "status": str(solution.status), "experts": len(self.decisions)}
        facts |= {} if self.people is None else {"experts compared": len(solution.experts)}
        facts |= {"episodes": int(self.episodes.sum()), "decisions": int(evidence.decisions)}
        return facts | {"log-likelihood": evidence.log_likelihood}

    def _columns(self) -> tuple[str, str, str, str]:
        """Return the columns that are drawn."""
        kind = "discount" if self.people is None else "shrunken"
        value = "discount" if self.people is None else "shrunken_discount"
        return "expert", value, f"{kind}_low", f"{kind}_high"

    def _tables(self, compute: bool) -> list[Table]:
        """List the tables: groups first where there are any; then the experts, the tests and the reward. Of very many persons
        the groups alone."""
        drawn = self._columns()
        usable = self.population is not None and not (self.people is not None and self.withheld)
        tables = self.population.evidence.expert_tables(self.population) if self.population is not None and usable else []
        if self.people is not None:
            return tables or [Table(without_empty(self.to_frame(), drawn), "persons", drawn[1:])]
        frame = self.to_frame()
        errors = "standard_error", "horizon", "half_life", "temperature", "decisions", "flags"
        shown = without_empty(frame[[name for name in (*drawn, *errors) if name in frame]], drawn)
        tables.append(Table(shown, f"experts, with {percent(LEVEL)} intervals", drawn[1:]))
        tests = self._tests()
        tables += [] if tests.empty else [Table(tests, "tests")]
        if self.reward_given:
            return tables
        reward = without_empty(self.reward_frame().reset_index(), ("difference",))
        return [*tables, Table(reward, "reward", ("difference",))]

    def _tests(self) -> pd.DataFrame:
        """Return one row for each test of a shared discount or reward."""
        rows: list[dict[str, Any]] = [
            {"hypothesis": f"one discount for {in_words([*test.experts])}", "statistic": test.statistic}
            | {"degrees": test.degrees, "p_value": test.p_value, "adjusted": test.adjusted}
            for test in (self.shared, *self.pairs)
            if test is not None
        ]
        if self.goals is not None and not self.goals.test.reason:
            test = self.goals.test
            rows.append({"hypothesis": "one reward for all", "statistic": test.statistic, "p_value": test.p_value})
        return pd.DataFrame(rows)

    def _height(self) -> float:
        return super()._height() if self.people is None or self.withheld else self.solution._height()

    def _draw(self, ax: Any) -> None:
        if self.people is not None and not self.withheld:
            self.solution._draw(ax)
            return
        draw_rows(ax, self.to_frame(), *self._columns())
        if self.people is None:
            ax.set_xlim(-0.02, 1.02)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert, from the shortest horizon to the longest: the columns of `people.csv`.

        Of a population in which nobody is fitted alone, one row for each person in the tables.
        """
        if self.people is not None:
            return self.people.to_frame()
        shown = np.where(self.given, self.solution.discounts, np.nan)
        frame = pd.DataFrame(
            {
                "expert": self.solution.experts,
                "discount": shown,
                "discount_low": self.intervals[:, 0],
                "discount_high": self.intervals[:, 1],
                "standard_error": self.standard_errors,
                "horizon": [self.horizon(g) for g in shown.tolist()],
                **({"half_life": [self.horizon.half_life(g) for g in shown.tolist()]} if self.horizon.timed else {}),
                "temperature": self.temperatures,
                "episodes": self.episodes,
                "decisions": self.decisions.astype(np.int64),
                "pseudo_r2": self.explained,
                "flags": ["; ".join(self._flags(k)) for k in range(shown.size)],
            }
        )
        if self.population is not None:
            frame = pd.concat([frame, differences.population_columns(self, self.population)], axis=1)
        return frame.iloc[self.order]

    def conditions_frame(self) -> pd.DataFrame | None:
        """Return one row per person and condition: the columns of `conditions.csv`. None where the formula has no conditions, or
        the
        population could not be estimated."""
        return differences.conditions_frame(self)

    def reward_frame(self) -> pd.DataFrame:
        """Return one row per parameter of the reward, by name: the reward and its difference (from the average logged step; of
        features
        from zero), each with its standard error. NaN where the decisions do not determine them or they are withheld.
        """
        return fit.reward_frame(self)

    def _flags(self, k: int) -> list[str]:
        limit, width = self.limits[k], float(np.diff(self.intervals[k])[0])
        cases = {
            self.reasons[k]: bool(self.reasons[k]),
            "known discount": self.known[k],
            f"at the {limit} discount": limit is not None,
            "wide interval": width > VAGUE_WIDTH,
            "no whole interval": self.given[k] and not self.known[k] and bool(np.isnan(width)),
            "result not to be used": bool(self.withheld),
            "left out of the comparison": self.population is not None and self.solution.experts[k] not in self.population.experts,
        }
        return [flag for flag, holds in cases.items() if holds]

    def _content(self) -> dict[str, Any]:
        """Return what `result.json` holds: the parts of every analysis; what a kind of state does not have is null."""
        content = self._about() | fit.reward_content(self) | differences.content(self)
        if self.people is None:
            content |= dict.fromkeys(("goals", "state_reward")) | self._of_single_experts()
        for finding in self.findings.values():
            content |= finding.content
        return content

    def _about(self) -> dict[str, Any]:
        """Return what holds for every fit."""
        solution, evidence = self.solution, DecisionEvidence.of(self.solution)
        return {
            "schema": 2,
            "warnings": self.warnings,
            "answer": self.answer,
            "headline": self.headline,
            "verdicts": [finding.to_dict() for finding in self.verdicts],
            "withheld": self.withheld or None,
            "finished": self.finished,
            "quick": self.quick,
            "level": LEVEL,
            "largest_discount": self.largest_discount,
            "longest_episode": self.horizon.longest,
            "time_unit": self.horizon.unit,
            "decisions": evidence.decisions,
            "status": str(solution.status),
            "message": solution.message,
            "residual": solution.residual,
            "ridge": evidence.get("ridge"),
            "recovery": _plain(self.recovery),
            "remarks": self.remarks,
            "seconds": solution.seconds,
            "seed": solution.seed,
            "version": package_version(),
        }

    def _of_single_experts(self) -> dict[str, Any]:
        """Return what else is known where experts were fitted alone."""
        mdps = self.problem.mdps if self.sieve is None else ()
        return {
            "lookahead": _plain(self.lookahead),
            "penalty": _plain(self.penalty),
            "untaken_actions": [untaken_actions(mdp) for mdp in mdps if mdp.sample_sizes is not None],
            "evidence": self.sieve,
        }


def _plain(result: Any) -> dict[str, Any] | None:
    return None if result is None else result.to_dict()
