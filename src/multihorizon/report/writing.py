"""What a page says in words of a fit as a whole: the answer on top, and what to write in a paper and how to cite it."""

from __future__ import annotations

import numpy as np

from multihorizon.analysis import Analysis
from multihorizon.crowd import CrowdAnalysis
from multihorizon.likelihood.evidence import SieveEvidence
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.report.charts import Block, Lead, Listing, Notice, Quote, Section
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.words import count


def notices(found: Analysis | CrowdAnalysis) -> tuple[list[str], list[str]]:
    """The warnings that stand before the answer, and those after it. The answer itself begins with why no number may be used."""
    if found.withheld:
        return [], found.warnings[1:]
    return [text for text in found.warnings if text not in found.notes], found.notes


def answer_blocks(found: Analysis | CrowdAnalysis) -> list[str | Block]:
    """What a reader must know before any number, and the answer to what was asked."""
    return [*map(Notice, notices(found)[0]), Notice(found.answer) if found.withheld else Lead(found.answer)]


def writing_section(found: Analysis | CrowdAnalysis) -> Section:
    """A paragraph on the method and one on the result, as they can stand in a paper, and the references."""
    heading = "What to write, and how to cite"
    asked = found.solution if isinstance(found, CrowdAnalysis) else found.population
    blocks: list[str | Block] = []
    if found.withheld:
        blocks.append("There is no result to write about yet: see on top why.")
    else:
        asked = asked if asked is not None and asked.status == Status.CONVERGED else None
        method = _of_population(asked) if asked is not None else _of_experts(found) if isinstance(found, Analysis) else ""
        blocks.append("A paragraph on the method and one on the result, to be copied and changed:")
        blocks.append(Quote(f"{_model(found)} {method}"))
        blocks.append(
            Quote(f"{found.answer} {found.verdicts[-1].reasons if isinstance(found, CrowdAnalysis) else found.fit.reasons}")
        )
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


def _model(found: Analysis | CrowdAnalysis) -> str:
    """What was observed, and how choices are thought to come about."""
    episodes, decisions = int(np.sum(found.episodes)), int(found.decisions.sum())
    seen = f"{count(found.decisions.size, 'person')} made {count(decisions, 'decision')} in {count(episodes, 'episode')}."
    asked = found.solution if isinstance(found, CrowdAnalysis) else found.population
    if asked is not None and (compared := len(asked.experts)) < found.decisions.size:
        seen += f" Of these, {count(compared, 'person')} {'was' if compared == 1 else 'were'} compared."
    reward = "The reward was given." if found.reward_given else "One reward, shared by all, was estimated with the rest."
    if isinstance(found, Analysis) and found.deviations is not None:
        spread = "was given" if found.deviations.given else "was estimated with the rest"
        reward = f"Each person's reward deviates normally from a common one; the spread of these deviations {spread}."
    return (
        f"{seen} How far ahead each of them plans was estimated with multihorizon {package_version()}. A person with discount γ "
        "and temperature λ is taken to choose an action with a probability proportional to exp(Q/λ), where Q is the expected sum "
        f"of rewards and of λ times the entropy of later choices, those t {found.horizon.many} ahead weighted by γ to the power "
        f"t. {reward}"
    )


def _of_population(found: Solution) -> str:
    population = PopulationEvidence.of(found).population
    if population.types is not None:
        how = "their number was tested by simulation" if population.types["chosen"] else "their number was given"
        return f"Persons were taken to be of {population.types['number']} types, each with a discount and a temperature; {how}."
    formula, within = found.options.get("formula") or "~ 1", population.conditions
    mixed = " Conditions were compared within persons." if within else ""
    columns = [row["column"] for row in population.contrasts["discount"]]
    holm = len(set(columns)) < len(columns)
    return (
        "The logit of γ and the logarithm of λ were taken to vary normally between persons around means that follow the formula "
        f"{formula}, and persons were averaged out.{mixed} Effects were tested by Student's t with {population.degrees} degrees "
        f"of freedom{', and pairs of groups with Holm’s correction' if holm else ''}. Intervals are 95 % intervals."
    )


def _of_experts(found: Analysis) -> str:
    evidence = found.evidence
    if isinstance(evidence, SieveEvidence):
        return (
            f"Reward and values were taken to be sums of {evidence.functions} functions of the state, and next states were "
            "predicted from the same decisions. Parameters were estimated by maximum likelihood, with 95 % intervals that hold "
            "the error of both."
        )
    how = "standard errors" if found.quick else "the profile likelihood"
    several = " That discounts are equal was tested by likelihood ratios." if found.shared is not None else ""
    several += " Pairs have Holm’s correction." if len(found.pairs) > 1 else ""
    held = " A penalty holds the rewards." if evidence.ridge else ""
    return f"Parameters were estimated by maximum likelihood, with 95 % intervals by {how}.{held}{several}"
