"""What a page says in words of a fit as a whole: the answer on top, and what to write in a paper and how to cite it."""

from __future__ import annotations

import numpy as np

from multihorizon.population.evidence import PopulationEvidence
from multihorizon.questions.whole import Analysis
from multihorizon.report.charts import Block, Lead, Listing, Notice, Quote, Section
from multihorizon.result import package_version
from multihorizon.solution import Solution
from multihorizon.words import count


def answer_blocks(analysis: Analysis) -> list[str | Block]:
    """Return what a reader must know before any number, and the answer to what was asked."""
    return [*map(Notice, analysis.notices[0]), Notice(analysis.answer) if analysis.withheld else Lead(analysis.answer)]


def writing_section(analysis: Analysis) -> Section:
    """Return a paragraph on the method and one on the result, as they can stand in a paper, and the references."""
    heading = "What to write, and how to cite"
    blocks: list[str | Block] = []
    if analysis.withheld:
        blocks.append("There is no result to write about yet: see on top why.")
    else:
        asked = analysis.reported_population
        method = _of_population(asked) if asked is not None else _of_experts(analysis) if analysis.people is None else ""
        blocks.append("A paragraph on the method and one on the result, to be copied and changed:")
        blocks.append(Quote(f"{_model(analysis)} {method}"))
        blocks.append(Quote(f"{analysis.answer} {analysis.fit.reasons}"))
    version = package_version()
    blocks.append("Cite the software with its version, and the paper on experts with one reward and several horizons:")
    blocks.append(
        Listing(
            "@software{multihorizon,\n"
            "  author  = {{The multihorizon authors}},\n"
            "  title   = {multihorizon: one reward, several planning horizons},\n"
            f"  version = {{{version}}}\n"
            "}\n"
            "@article{yao_multiple_horizons,\n"
            "  author  = {Yao, Jiayu and Pan, Weiwei and Doshi-Velez, Finale and Engelhardt, Barbara E.},\n"
            "  title   = {Inverse Reinforcement Learning with Multiple Planning Horizons},\n"
            "  journal = {arXiv},\n"
            "  year    = {2024},\n"
            "  doi     = {10.48550/arXiv.2409.18051}\n"
            "}"
        )
    )
    return Section(heading, blocks)


def _model(analysis: Analysis) -> str:
    """Return what was observed, and how choices are thought to come about."""
    episodes, decisions = int(np.sum(analysis.episodes)), int(analysis.decisions.sum())
    seen = f"{count(analysis.decisions.size, 'person')} made {count(decisions, 'decision')} in {count(episodes, 'episode')}."
    if analysis.population is not None and (compared := len(analysis.population.experts)) < analysis.decisions.size:
        seen += f" Of these, {count(compared, 'person')} {'was' if compared == 1 else 'were'} compared."
    reward = "The reward was given." if analysis.reward_given else "One reward, shared by all, was estimated with the rest."
    if analysis.deviations is not None:
        spread = "was given" if analysis.deviations.given else "was estimated with the rest"
        reward = f"Each person's reward deviates normally from a common one; the spread of these deviations {spread}."
    return (
        f"{seen} How far ahead each of them plans was estimated with multihorizon {package_version()}. A person with discount γ "
        "and temperature λ is taken to choose an action with a probability proportional to exp(Q/λ), where Q is the expected sum "
        f"of rewards and of λ times the entropy of later choices, those t {analysis.horizon.many} ahead weighted by γ to the "
        f"power t. {reward}"
    )


def _of_population(analysis: Solution) -> str:
    population = PopulationEvidence.of(analysis).population
    if population.types is not None:
        how = "their number was tested by simulation" if population.types["chosen"] else "their number was given"
        return f"Persons were taken to be of {population.types['number']} types, each with a discount and a temperature; {how}."
    formula, within = analysis.options.get("formula") or "~ 1", population.conditions
    mixed = " Conditions were compared within persons." if within else ""
    columns = [row["column"] for row in population.contrasts["discount"]]
    holm = len(set(columns)) < len(columns)
    return (
        "The logit of γ and the logarithm of λ were taken to vary normally between persons around means that follow the formula "
        f"{formula}, and persons were averaged out.{mixed} Effects were tested by Student's t with {population.degrees} degrees "
        f"of freedom{', and pairs of groups with Holm’s correction' if holm else ''}. Intervals are 95 % intervals."
    )


def _of_experts(analysis: Analysis) -> str:
    if analysis.sieve is not None:
        return (
            f"Reward and values were taken to be sums of {analysis.sieve.functions} functions of the state, and next states were "
            "predicted from the same decisions. Parameters were estimated by maximum likelihood, with 95 % intervals that hold "
            "the error of both."
        )
    how = "standard errors" if analysis.quick else "the profile likelihood"
    several = " That discounts are equal was tested by likelihood ratios." if analysis.shared is not None else ""
    several += " Pairs have Holm’s correction." if len(analysis.pairs) > 1 else ""
    held = " A penalty holds the rewards." if analysis.likelihood is not None and analysis.likelihood.ridge else ""
    return f"Parameters were estimated by maximum likelihood, with 95 % intervals by {how}.{held}{several}"
