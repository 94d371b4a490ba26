"""Who shares a goal with whom, where both rewards and discounts may differ: experts in groups by their reward.

*Policies.* Two experts share a reward exactly if the system of the pair has a solution (`joint_equations`). A pair of policies
usually has more equations than unknowns, so that experts with different rewards contradict each other. Every pair gets a verdict:

* `share`: the pair identifies both discounts, and experts with unrelated rewards would hardly fit as well (`coincidence`);
* `differ`: no reward and discounts explain both, up to the tolerance;
* `cannot tell`: some reward explains both, but that says little: the pair is not identified, or has too few equations.

Pairs that share a reward are linked, the surest first, and links make groups. Two groups become one only if their joint system
has a solution. Several experts can show what pairs cannot, so groups that nothing sets apart are also tried together: they become
one if all of them together are identified. What each expert says is computed once, and the linear systems of all pairs are solved
together (`pair_systems`). They settle who differs. Experts of whom every pair may share a reward are looked at together: where
one of them shares it with each of the others, and all of them together are identified, the other pairs follow, and say so.

*Decisions.* Partitions of the experts are weighed by what their groups' rewards explain (see below). The probability that two
experts share a goal is the weight of the partitions in which they do. Experts are put into one group if they are linked by
probabilities of at least 95%. So a group holds experts who share its goal beyond reasonable doubt. Whoever is alone may still
share a goal with somebody: that is said.

Whether all share one reward is tested by itself (`sharing`). Goals differ only if the test rejects, and are shared only if
all are surely in one group. Else the verdict is `cannot tell`. Experts who share a reward of actions look as if they had
different rewards of states (`sharing`). So no groups are made where a reward that depends on the action predicts better.

*Partitions of the experts*, weighed by what their rewards explain of the decisions. The members of a group share a reward θ, and
each has a discount γ. The score of a group is the log-likelihood L of its fit less a price for each parameter that the decisions
determine,

    score = L − c · tr[I (I + Λ)⁻¹],        c = max(1, ½ log of the decisions per determined parameter of the experts alone).

The trace counts parameters by how much the decisions say of them: I is the Fisher information, Λ the precision of a wide prior
(`θ_j f_j ~ N(0, σ²)` with f_j the largest value of feature j, a uniform γ, and `log λ ~ N(0, 1)` where temperatures are free). At
c = 1 the score estimates the log-likelihood of as many held-out decisions (Akaike). The logarithm makes the number of groups
consistent, as in Schwarz's criterion (BIC). BIC itself charges the full price for rewards of states that nobody visited, so with
few decisions it would claim that everybody shares a goal. A marginal likelihood would prefer the better determined of two groups
for a newcomer, because it takes goals to have nothing in common, while often they differ in a few states only. The spread σ is
that with which the experts alone have the best score at c = 1. It keeps every climb finite: there is always a maximum.

Where decisions of an episode go together, the log-likelihood is divided by how many times as much it varies as one of independent
decisions (quasi-likelihood, as in QAIC), and decisions count as so many fewer.

A partition of the experts into groups has the sum of its groups' scores, and a probability in proportion to the exponential of
that sum (Akaike's weights). The search begins with single experts and merges the two groups whose merging promises most, as long
as any gains. From there the best partition is taken again and again, and its neighbours are tried: one expert in another group or
alone, or two groups merged.

A fit takes long, and most groups are not worth one. So each expert's log-likelihood, at the best discount and temperature, is
expanded to second order around the reward of the group in which the expert is. The sum of these parabolas and of the prior has
its maximum in closed form, which estimates the score of any group. A group is fitted unless the estimate puts its partition far
below the best. Pairs that were never fitted together say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from multihorizon.checks import Floats, Seed, as_count, as_positive, as_seed, label, renamed
from multihorizon.choice.model import Likelihood, Point
from multihorizon.choice.settings import Choice, Temperature, check_temperature, read_settings
from multihorizon.driver import solve
from multihorizon.exact.equations import (
    PolicyTemperature,
    has_features,
    in_order_of_content,
    joint_equations,
    read_equations,
    read_temperature,
    reward_families,
)
from multihorizon.exact.identify import Conclusion, Identification, judge
from multihorizon.exact.linear_systems import pair_systems
from multihorizon.files import for_json
from multihorizon.likelihood.action_rewards import StateRewardTest
from multihorizon.likelihood.clusters import TakenAsIndependent, dispersion, independence_words
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.likelihood.search import choice_probability_start, climb, own_discounts
from multihorizon.parallel import Progress, Run, limits, silent
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.sharing import (
    SharedGoalTest,
    bound_words,
    fit_and_test,
    shared_goal_test,
    state_reward_test,
    temperature_prior,
)
from multihorizon.result import Result
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import Table, decimals, p_text, without_empty

#: With fewer simulations the test of one reward can never reject.
LEAST_SIMULATIONS = 19

Shares = Literal["share", "differ", "cannot tell"]
#: What is known of a group: of policies an `Identification`, of decisions a `Solution`.
Found = TypeVar("Found", Identification, Solution)


@dataclass(frozen=True)
class Pair:
    """What two experts say about sharing a reward.

    Attributes:
        experts: their names.
        verdict: "share", "differ" or "cannot tell".
        probability: of decisions, that they share one; NaN for policies.
        status: of policies, that of `identify` for the pair.
        misfit: of policies, how much worse the equations hold than errors of the tolerance explain; above 5 is "differ".
        coincidence: of policies, a rough chance that experts with unrelated rewards would fit as well; NaN where the verdict does
            not depend on it.
        left_out: why the pair was not looked at by itself; empty where it was.
    """

    experts: tuple[str, str]
    verdict: Shares
    probability: float = np.nan
    status: str = ""
    misfit: float = np.nan
    coincidence: float = np.nan
    left_out: str = ""


@dataclass(frozen=True, eq=False)
class Goals(Result, Generic[Found]):
    """The experts in groups that share a reward, as far as is known.

    Attributes:
        experts: all names, in the order of the problem.
        groups: tuples of names; whoever does not surely belong to a group is a group of one. Empty where groups are withheld.
        solutions: one for each group: what `identify` says of policies, or what `MaximumLikelihood` says of decisions.
        pairs: every pair of experts with its verdict.
        verdict: "share", "differ" or "cannot tell": do all share one reward?
        undecided: pairs of groups, by number, of which it is not known whether they share a reward.
        memberships: the probability `(K,G)` that each expert shares the goal of each group; for an expert who is a group of one,
            that nobody shares it. For policies it is 1, 0, or NaN where it is not known.
        sharing: the probability `(K,K)` that two experts share a goal; on the diagonal that nobody shares the expert's goal.
        test: the test that all share one reward; None for policies, which are compared exactly.
        deviations: of decisions, how far rewards may deviate from one; None where that was not estimated.
        unexplored: of decisions, how many partitions near the best were not looked around, because too many groups were fitted.
        independence: of decisions, what was taken to be independent, in a sentence; empty where it is every decision.
        state_reward: of decisions, the test that the reward depends on the state reached alone; None where that is not assumed.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "discount")

    experts: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    solutions: tuple[Found, ...]
    pairs: tuple[Pair, ...]
    verdict: Shares
    undecided: tuple[tuple[int, int], ...]
    memberships: Floats
    sharing: Floats
    test: SharedGoalTest | None = None
    deviations: Deviations | None = None
    unexplored: int = 0
    independence: str = ""
    state_reward: StateRewardTest | None = None

    @property
    def withheld(self) -> str:
        """Return why there are no groups; empty where there are."""
        return "" if self.state_reward is None else self.state_reward.why

    @property
    def discounts(self) -> Floats:
        """Return the discount of each expert `(K,)`; NaN where it is not identified."""
        by_name = {name: gamma for solution in self.solutions for name, gamma in _known_discounts(solution).items()}
        return np.array([by_name.get(name, np.nan) for name in self.experts])

    @property
    def misfits(self) -> Floats:
        """Return how badly each pair of policies fails `(K,K)`, in units of the tolerated errors; NaN on the diagonal."""
        matrix = np.full((len(self.experts), len(self.experts)), np.nan)
        for pair in self.pairs:
            i, j = (self.experts.index(name) for name in pair.experts)
            matrix[i, j] = matrix[j, i] = pair.misfit
        return matrix

    @property
    def ungrouped(self) -> tuple[str, ...]:
        """Return the experts of whom it is not known with whom they share a goal, if with anybody."""
        open_groups = {g for pair in self.undecided for g in pair}
        return tuple(group[0] for g, group in enumerate(self.groups) if len(group) == 1 and g in open_groups)

    def sentences(self) -> str:
        """Return the finding in plain words."""
        lines: list[str] = [self.headline()]
        for number, (group, solution) in enumerate(zip(self.groups, self.solutions, strict=True), start=1):
            lines.append(f"Goal {number}: {', '.join(group)}. {_describe(solution)}")
        if self.state_reward is not None and not self.withheld:
            lines.append(self.state_reward.verdict.reasons)
        lines += [self.independence] if self.independence else []
        if self.unexplored:
            lines.append(
                f"{self.unexplored} groupings that are nearly as likely were not looked around: probabilities are rough."
            )
        if len(self.undecided) > 1 and len(self.undecided) == comb(len(self.groups), 2):
            return "\n".join([*lines, "Any of these goals may be the same."])
        lines += [f"It is not known whether goals {g + 1} and {h + 1} are the same." for g, h in self.undecided]
        return "\n".join(lines)

    def headline(self) -> str:
        """Return the verdict in a sentence."""
        number = len(self.groups)
        if len(self.experts) == 1:
            return "One expert alone shares a goal with nobody, and their discount is not identified."
        if self.withheld:
            return f"Whether the experts share one reward is not identified. {self.withheld}"
        if self.test is None:
            if number == 1:
                return "All experts share one reward."
            if self.undecided:
                return f"The links between the experts make {number} groups, but some of these may share a reward."
            return f"The experts have {number} different goals."
        p = self.test.words
        bound = "" if self.deviations is None or self.test.rejected else " " + bound_words(self.deviations)
        if self.verdict == "share":
            return f"The decisions support one reward that all experts share (test of one reward: {p}).{bound}".rstrip()
        if self.verdict == "differ":
            return f"The experts do not all share one reward ({p}). The links between them make {number} groups."
        if self.test.reason:
            return self.test.sentences()
        if number == 1:
            return f"One reward is likelier than several, but explains the decisions less well than it should ({p})."
        return f"These decisions do not show whether the experts share one reward ({p}).{bound}".rstrip()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert: the number of the goal, from 1, and the discount; NaN where withheld or not identified."""
        number = {name: g for g, group in enumerate(self.groups, start=1) for name in group}
        goal = [number.get(name, np.nan) for name in self.experts]
        return pd.DataFrame({"expert": self.experts, "goal": goal, "discount": self.discounts})

    def _facts(self) -> dict[str, Any]:
        p = {} if self.test is None else {"one reward for all, p": p_text(self.test.p_value, "")}
        return {"experts": len(self.experts), "do all share one reward": self.verdict, "groups": len(self.groups), **p}

    def _tables(self, compute: bool) -> list[Table]:
        rows = [vars(pair) | {"experts": ", ".join(pair.experts)} for pair in self.pairs]
        of_experts = Table(self.to_frame(), "experts", self._drawn[1:])
        return [of_experts, Table(without_empty(pd.DataFrame(rows)), "pairs")] if rows else [of_experts]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, as JSON takes them; None where nothing is known."""
        content = {name: value for name, value in vars(self).items() if name != "test"} | {
            "test": None if self.test is None else vars(self.test),
            "state_reward": None if self.state_reward is None else vars(self.state_reward),
            "deviations": None if self.deviations is None else vars(self.deviations),
            "discounts": self.discounts,
            "pairs": [vars(pair) for pair in self.pairs],
            "solutions": [_plain(solution) for solution in self.solutions],
        }
        return cast("dict[str, Any]", for_json(content))

    def _content(self) -> dict[str, Any]:
        return self.to_dict()


def _known_discounts(solution: Identification | Solution) -> dict[str, float]:
    """Return each member's discount, NaN where it is not identified or the fit did not converge."""
    if isinstance(solution, Identification):
        identified: Sequence[bool] = solution.discounts_identified.tolist()
    else:
        converged = solution.status != Status.NOT_CONVERGED
        identified = [is_identified and converged for is_identified in LikelihoodEvidence.of(solution).identified]
    pairs = zip(solution.experts, solution.discounts, identified, strict=True)
    return {name: float(gamma) if is_identified else np.nan for name, gamma, is_identified in pairs}


def _describe(solution: Identification | Solution) -> str:
    gammas = list(_known_discounts(solution).values())
    exact = isinstance(solution, Identification)
    if isinstance(solution, Identification) and solution.status == "infeasible":
        return "No reward and discount explain this expert." if len(gammas) == 1 else solution.headline()
    if solution.status == Status.NOT_CONVERGED:
        return "The fit of this group did not converge, so no discount is given."
    if len(gammas) == 1 and np.isnan(gammas[0]):
        return "Alone, so the discount is not identified."
    discounts = ("not identified" if np.isnan(gamma) else f"{gamma:.{4 if exact else 3}f}" for gamma in gammas)
    return f"Discounts {', '.join(discounts)}."


def _plain(solution: Identification | Solution) -> dict[str, Any]:
    if isinstance(solution, Identification):
        return solution.to_dict()
    return {
        "experts": solution.experts,
        "status": str(solution.status),
        "message": solution.message,
        "discounts": list(_known_discounts(solution).values()),
        "intervals": solution.confidence_intervals(),
        "reward": solution.reward,
        "temperatures": solution.temperature,
    }


@renamed(simulations="draws")
def goals(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    draws: int = 999,
    *,
    cluster: Choice = "auto",
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Goals[Identification] | Goals[Solution]:
    """Group experts by the reward they share, where rewards and discounts may both differ.

    Args:
        problem: experts who are all given as policies without zero entries, or all as demonstrations; one task or several, with
            or without features.
        temperature: for policies a number or "per_expert", for demonstrations as in `MaximumLikelihood`. It is 1 by default,
            because with "per_expert" and "pooled" experts share a goal already if their rewards are the same up to a factor.
        tolerance: how large the errors in policies may be, as in `identify`; with large errors fewer pairs can be decided. Not
            used for demonstrations.
        draws: for demonstrations how many tables are drawn where the test that all share one reward, which is that of
            `analyse`, is simulated.
        cluster: for demonstrations what is independent, as in `MaximumLikelihood`: by default episodes where choices of one
            episode go together, else decisions. Episodes are those of the `Demonstrations` the problem was made of.
        seed: fixes the simulations.
        jobs: processes that share the work of the test; -1 is all cores. The digits do not depend on it.
        progress: called as the work goes on.

    Returns:
        Groups of names, the answer of each group, and the verdict on each pair (`multihorizon.questions.goals.Goals`).

    Raises:
        ValueError: on malformed options and experts, and where policies and demonstrations are mixed.

    Example:
        >>> import numpy as np
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan
        >>> mdp = domains.random_mdp(6, 3, seed=0)
        >>> first, second = 2 * np.random.default_rng(0).normal(size=(2, 6))
        >>> policies = [soft_plan(mdp, r, g).policy for r, g in ((first, 0.2), (second, 0.5), (first, 0.9))]
        >>> goals(Problem(mdp, policies, names=["ann", "ben", "cem"])).groups
        (('ann', 'cem'), ('ben',))
        >>> table = Demonstrations.simulate(mdp, policies, episodes=20, max_steps=100, names=["ann", "ben", "cem"])
        >>> goals(Problem(mdp, table)).groups
        (('ann', 'cem'), ('ben',))
    """
    run = Run(as_seed(seed), jobs, progress)
    if any(expert.counts is None for expert in require_finite(problem).experts):
        return _goals_of_policies(problem, cast(PolicyTemperature, temperature), tolerance, run)
    return goals_of_decisions(problem, temperature, draws, cluster, run)


# Policies.


def _goals_of_policies(problem: Problem, temperature: PolicyTemperature, tolerance: float, run: Run) -> Goals[Identification]:
    lam = read_temperature(temperature)
    as_positive(tolerance, "tolerance")
    for expert in problem.experts:
        if expert.counts is not None:
            raise ValueError(f"expert {expert.name} must be given as a policy like the others, got demonstrations")
    policies = _Policies(problem, lam, tolerance)
    names = problem.names
    pairs = policies.judge_pairs(run)
    together_groups = [tuple(sorted(group, key=names.index)) for group in policies.try_together(policies.link())]
    groups = tuple(sorted(together_groups, key=lambda group: names.index(group[0])))
    together = [policies.judge(group, extent=True).report() for group in groups]
    open_pairs = [(g, h) for g, h in combinations(range(len(groups)), 2) if not policies.apart(groups[g], groups[h])]
    number = [next(g for g, group in enumerate(groups) if name in group) for name in names]
    memberships = np.eye(len(groups))[number]
    for k, home in enumerate(number):
        others = [g for pair in open_pairs if home in pair for g in pair if g != home]
        memberships[k, others + [home] * (len(groups[home]) == 1 and bool(others))] = np.nan
    sharing = memberships[:, number]
    np.fill_diagonal(sharing, [memberships[k, home] if len(groups[home]) == 1 else 0.0 for k, home in enumerate(number)])
    return Goals(
        experts=names,
        groups=groups,
        solutions=tuple(one.listed_as(g, free_temperatures=lam is None) for one, g in zip(together, groups, strict=True)),
        pairs=pairs,
        verdict=_verdict(len(groups), open_pairs, len(names) > 1),
        undecided=tuple(open_pairs),
        memberships=memberships,
        sharing=sharing,
    )


def _verdict(n_groups: int, open_pairs: Sequence[tuple[int, int]], one_is_shared: bool, differ: bool = True) -> Shares:
    """Return whether all share one reward; `one_is_shared` and `differ` say whether one group, and several, are to be
    believed."""
    if n_groups == 1:
        return "share" if one_is_shared else "cannot tell"
    return "differ" if differ and len(open_pairs) < comb(n_groups, 2) else "cannot tell"


class _Policies:
    """What each expert's policy says, computed once; what some of them say together; and the groups that follow."""

    #: A fit counts as a shared goal if the logarithm of the chance that unrelated rewards would fit as well is at most this.
    coincidence = -6.0

    def __init__(self, problem: Problem, lam: float | None, tolerance: float) -> None:
        self.problem = in_order_of_content(problem)
        self.names = problem.names
        self.lam = lam
        self.tolerance = tolerance
        self._place = {name: k for k, name in enumerate(problem.names)}
        policies = [read_equations(expert) for expert in self.problem.experts]
        self.families = None if has_features(problem) else reward_families(self.problem, policies, tolerance)
        self.pairs: dict[tuple[str, str], Pair] = {}
        self.differ: dict[str, set[str]] = {name: set() for name in problem.names}
        self.groups = {name: frozenset((name,)) for name in self.problem.names}
        self._judged: dict[frozenset[str], Conclusion] = {}

    def judge(self, names: Collection[str], extent: bool = False) -> Conclusion:
        """Return what is found of some experts; `extent` is whether a set is to be walked along."""
        result = self._judged.get(frozenset(names))
        if result is not None and (result.status != "set" or not extent):
            return result
        chosen = [i for i, expert in enumerate(self.problem.experts) if expert.name in names]
        problem = self.problem.with_experts([self.problem.experts[i] for i in chosen])
        families = None
        if self.families is not None:
            families = [replace(self.families[i], owner=k) for i, k in zip(chosen, problem.owner, strict=True)]
        result = judge(joint_equations(problem, self.lam, self.tolerance, families=families), extent=extent)
        if len(problem.names) > 2:  # of pairs there are many, and only their verdicts are asked for again
            self._judged[frozenset(names)] = result
        return result

    def judge_pairs(self, run: Run) -> tuple[Pair, ...]:
        """Return every pair with its verdict: from the linear systems of all pairs where these settle it, else by itself."""
        names = self.problem.names
        systems = None if self.families is None else pair_systems(self.families, self.problem.n_parameters, self.lam)
        if systems is not None:
            for i, j in combinations(range(len(names)), 2):
                misfit = float(systems.misfit[i, j])
                if systems.infeasible[i, j]:
                    self._tell(Pair((names[i], names[j]), "differ", np.nan, "infeasible", misfit))
                elif systems.loose[i, j]:
                    self._tell(Pair((names[i], names[j]), "cannot tell", np.nan, "set", misfit))
            n_parts, part = connected_components(systems.tight, directed=False)
            for members in (np.flatnonzero(part == p) for p in range(n_parts)):
                if systems.tight[np.ix_(members, members)].sum() == comb(members.size, 2) > 1:
                    self._judge_alike([names[k] for k in members], systems.misfit[np.ix_(members, members)])
        both = list(combinations(names, 2))
        for number, pair in enumerate(both, start=1):
            self._judge_pair(pair)
            run.progress(number / len(both), f"pair {number} of {len(both)}")
        return tuple(self.pairs[pair] for pair in combinations(self.names, 2))

    def _judge_pair(self, names: tuple[str, str]) -> Pair:
        """Return the verdict of a pair, by itself if there is none yet."""
        first, second = sorted(names, key=self._place.__getitem__)
        if (first, second) not in self.pairs:
            conclusion = self.judge((first, second))
            logarithm = conclusion.surplus()[1]
            verdict: Shares = "differ" if conclusion.status == "infeasible" else "cannot tell"
            if conclusion.status == "unique" and logarithm <= self.coincidence:
                verdict = "share"
            self._tell(Pair((first, second), verdict, np.nan, conclusion.status, conclusion.misfit, float(10.0**logarithm)))
        return self.pairs[first, second]

    def _judge_alike(self, names: Sequence[str], misfits: Floats) -> None:
        """Make experts a group of whom every pair may share a reward, if the first shares it with each and all are identified."""
        shared = all(self._judge_pair((names[0], name)).verdict == "share" for name in names[1:])
        if not shared or self.judge(names).status != "unique":
            return
        self.groups.update(dict.fromkeys(names, frozenset(names)))
        why = f"both share a reward with {names[0]}, and all {len(names)} are identified together"
        for (i, first), (j, second) in combinations(list(enumerate(names))[1:], 2):
            self._tell(Pair((first, second), "share", np.nan, "unique", float(misfits[i, j]), left_out=why))

    def _tell(self, pair: Pair) -> None:
        first, second = sorted(pair.experts, key=self._place.__getitem__)
        self.pairs[first, second] = replace(pair, experts=(first, second))
        if pair.verdict == "differ":
            self.differ[first].add(second)
            self.differ[second].add(first)

    def apart(self, first: Collection[str], second: Collection[str]) -> bool:
        """Return whether some expert of one group differs from some expert of the other."""
        return any(not self.differ[name].isdisjoint(second) for name in first)

    def link(self) -> list[frozenset[str]]:
        """Join experts who share a reward, the surest pair first, wherever the joint system of their groups has a solution."""
        linked = [pair for pair in self.pairs.values() if pair.verdict == "share" and not pair.left_out]
        for pair in sorted(linked, key=lambda p: p.coincidence):
            first, second = (self.groups[name] for name in pair.experts)
            together = first | second
            if first == second or self.apart(first, second):
                continue
            if len(together) == 2 or self.judge(together).status != "infeasible":
                self.groups.update(dict.fromkeys(together, together))
        return list(dict.fromkeys(self.groups.values()))

    def try_together(self, groups: list[frozenset[str]]) -> list[frozenset[str]]:
        """Join groups that nothing sets apart where they are identified together: two at a time, then all that are connected."""
        for first, second in combinations(groups, 2):
            if len(first | second) > 2 and not self.apart(first, second) and self._share([first, second]):
                rest = [group for group in groups if group not in (first, second)]
                return self.try_together([first | second, *rest])
        close = np.array([[not self.apart(first, second) for second in groups] for first in groups])
        n_parts, part = connected_components(close, directed=False)
        joined: list[frozenset[str]] = []
        for p in range(n_parts):
            members = [group for group, number in zip(groups, part, strict=True) if number == p]
            joined += [frozenset().union(*members)] if len(members) > 2 and self._share(members) else members
        return joined

    def _share(self, groups: Sequence[frozenset[str]]) -> bool:
        """Return whether some groups are identified together, and not by coincidence; only the equations between groups count."""
        together = self.judge(frozenset().union(*groups))
        if together.status != "unique":
            return False
        alone = sum(self.judge(group).surplus()[1] for group in groups)
        return bool(together.surplus()[1] - alone <= self.coincidence)


# Decisions.


def goals_of_decisions(
    problem: Problem,
    temperature: Temperature = 1.0,
    draws: int = 999,
    cluster: Choice = "auto",
    run: Run = Run(),
) -> Goals[Solution]:
    """Group experts, given as demonstrations, by the reward they share; arguments as in `goals`."""
    check_temperature(temperature)
    as_count(draws, "draws", least=LEAST_SIMULATIONS)
    if problem.n_parameters > limits().dense_rewards:
        raise ValueError(
            f"experts can be grouped by goals for at most {limits().dense_rewards} rewards, got {problem.n_parameters}: "
            "tie the rewards of similar states together with features"
        )
    solver = MaximumLikelihood(temperature, deviations="estimated", cluster=cluster)
    fit, wider, grouping = run.parts(2, 1, 7)
    _, together, test, _ = fit_and_test(problem, solver, draws, run=fit)
    test = test or shared_goal_test(together, draws)  # which says why there is nothing to test
    of_states = state_reward_test(together, test, wider)
    if of_states is not None and of_states.clear:
        return _without_groups(together, test, of_states)
    grouped = group_experts(together, test, temperature, grouping)
    return replace(grouped, state_reward=of_states)


def _without_groups(together: Solution, test: SharedGoalTest, of_states: StateRewardTest) -> Goals[Solution]:
    """No groups, because differences between experts may be artefacts of the reward."""
    names = together.experts
    unknown = np.full((len(names), len(names)), np.nan)
    why = "the reward depends on the action as well"
    pairs = tuple(Pair(pair, "cannot tell", left_out=why) for pair in combinations(names, 2))
    return Goals(names, (), (), pairs, "cannot tell", (), unknown[:, :0], unknown, test, state_reward=of_states)


def group_experts(together: Solution, test: SharedGoalTest, temperature: Temperature, run: Run) -> Goals[Solution]:
    """Group the experts of a fit with one reward, where the test that all share it is done."""
    problem = together.require_problem()
    names = problem.names
    number = range(problem.n_experts)
    said = LikelihoodEvidence.of(together).independence or TakenAsIndependent(unit="decision", p_value=None, reason="")
    scores = Scores(
        in_order_of_content(problem), temperature, 1.0 if said["unit"] == "decision" else dispersion(resume(together))
    )
    weights, unexplored = weigh_partitions(scores, run.part(0.0, 0.9))
    shared = sharing_probabilities(weights, len(names))
    place = [scores.problem.names.index(name) for name in names]
    n_groups, part = connected_components((shared >= SURE) & ~np.eye(len(names), dtype=np.bool_), directed=False)
    linked = [frozenset(np.flatnonzero(part == g).tolist()) for g in range(n_groups)]
    linked.sort(key=lambda group: min(place.index(k) for k in group))
    apart = {
        (g, h)
        for g, h in combinations(range(n_groups), 2)
        if test.rejected and scores.apart(linked[g], linked[h], shared[np.ix_(sorted(linked[g]), sorted(linked[h]))])
    }
    open_pairs = [pair for pair in combinations(range(n_groups), 2) if pair not in apart]
    memberships = np.array([[shared[k, sorted(group - {k}) or [k]].mean() for group in linked] for k in place])
    groups = tuple(tuple(name for name, k in zip(names, place, strict=True) if k in group) for group in linked)
    solutions = (
        [together] if n_groups == 1 else [_solve_group(problem, group, temperature, said["unit"], run) for group in groups]
    )
    run.progress(1.0, f"{n_groups} groups")
    shared = shared[np.ix_(place, place)]
    group_of = [next(g for g, group in enumerate(groups) if name in group) for name in names]
    pairs = []
    for i, j in combinations(number, 2):
        verdict: Shares = "differ" if (min(group_of[i], group_of[j]), max(group_of[i], group_of[j])) in apart else "cannot tell"
        verdict = "share" if shared[i, j] >= SURE else verdict
        why = scores.why_left_out(place[i], place[j])
        pairs.append(Pair((names[i], names[j]), verdict, float(shared[i, j]), left_out=why))
    accepted = not test.rejected and not test.reason
    verdict = _verdict(n_groups, open_pairs, accepted, test.rejected)
    return Goals(
        names,
        groups,
        tuple(solutions),
        tuple(pairs),
        verdict,
        tuple(open_pairs),
        memberships,
        shared,
        test,
        LikelihoodEvidence.of(together).deviations,
        unexplored,
        " ".join(independence_words(said)),
    )


def _solve_group(problem: Problem, group: Sequence[str], temperature: Temperature, unit: Choice, run: Run) -> Solution:
    members = problem.with_experts(expert for expert in problem.experts if expert.name in group)
    if isinstance(temperature, Mapping):
        temperature = {key: value for key, value in temperature.items() if label(key, "the name of an expert") in group}
    return solve(members, MaximumLikelihood(temperature, cluster=unit), seed=run.seed)


#: The probability from which something counts as sure.
SURE = 0.95

Group = frozenset[int]
Partition = frozenset[Group]


@dataclass(frozen=True, eq=False)
class GroupFit:
    """The most likely point of a group, how many parameters its decisions determine, and whether the climb ended."""

    point: Point
    determined: float
    finished: bool


@dataclass(frozen=True, eq=False)
class Parabola:
    """An expert's log-likelihood near a reward, at the best discount and temperature: `constant + slopeᵀ θ − ½ θᵀ J θ`.

    `J = A − B C⁻¹ Bᵀ` with `rewards` A `(d,d)`, `across` B `(d,f)` and `own` C `(f,f)`, the information of the decisions in the
    rewards, in them and the f free numbers of the expert, and in these. `prior` `(f,)` is the precision of what is known of them.
    """

    constant: float
    slope: Floats
    rewards: Floats
    across: Floats
    own: Floats
    prior: Floats

    def taken(self, precision: Floats) -> Floats:
        """Return `B C⁻¹ Bᵀ` `(d,d)`: what is lost where one's own numbers are not known, but for this precision `(f,)`."""
        lost: Floats = self.across @ np.linalg.solve(self.own + np.diag(precision), self.across.T)
        return lost


def parabolas(fit: GroupFit) -> list[Parabola]:
    """Return one start per member of a group, in their order, around the group's reward."""
    point, model, d = fit.point, fit.point.likelihood, fit.point.likelihood.n_reward
    values = model.person_values(point)
    theta = model.reward(point.x)
    slopes, matrices = np.zeros((model.n_experts, d)), np.zeros((model.n_experts, d + 2, d + 2))
    for i, plan in enumerate(point.plans):
        rows, columns, scores = point.scores(i)
        counts = plan.persons.counts.reshape(-1, plan.lam.size)[rows]
        for n, k in enumerate(plan.persons.owners):
            slopes[k, columns[n][:-2]] += counts[:, n] @ scores[:, n, :-2]
    for k, places, block in point.own_blocks():
        places = np.array([*places[:-2], d, d + 1])
        matrices[k][np.ix_(places, places)] += block
    result = []
    for matrix, slope, value, group in zip(matrices, slopes, values, model.temperature_groups, strict=True):
        free = [d] if model.fixed[model.temperature_slice][group] else [d, d + 1]
        # Nothing is known of a discount, but an expert who does not look ahead at all would leave no matrix to solve with.
        prior = np.array([1e-6, 1.0])[: len(free)]
        near = Parabola(0.0, slope, matrix[:d, :d], matrix[:d, free], matrix[np.ix_(free, free)], prior)
        moved = (near.rewards - near.taken(prior)) @ theta
        # At the best discount and temperature nothing is left to gain by them; what a bound holds back is left out.
        result.append(replace(near, constant=float(value - slope @ theta - 0.5 * theta @ moved), slope=slope + moved))
    return result


class Scores:
    """The scores of any groups of a problem's experts, each computed once, and estimates of those that were not."""

    def __init__(self, problem: Problem, temperature: Temperature, dispersion: float = 1.0) -> None:
        self.problem, self.dispersion = problem, dispersion
        free = "per_expert" if temperature == "pooled" else temperature
        self._everyone = Likelihood(problem, read_settings(problem, free, None, None, None))
        tried: list[tuple[float, Floats, dict[Group, GroupFit]]] = []
        for spread in (0.3, 1.0, 3.0, 10.0):  # of rewards, in temperatures
            self._ridge = (self._everyone.feature_sizes / (spread * self._everyone.known_temperature)) ** 2
            self._fits: dict[Group, GroupFit] = {}
            singles = [self(frozenset((k,))) for k in range(problem.n_experts)]
            tried.append((sum(fit.point.value / dispersion - fit.determined for fit in singles), self._ridge, self._fits))
        _, self._ridge, self._fits = max(tried, key=lambda one: one[0])
        determined = sum(fit.determined for fit in self._fits.values())
        counted = self._everyone.decisions / dispersion
        self.price = max(1.0, 0.5 * float(np.log(counted / determined))) if determined > 0 else 1.0
        self._near: dict[int, tuple[Group, Parabola]] = {}
        self._estimates: dict[frozenset[tuple[int, Group]], float] = {}
        self.left_out: dict[tuple[int, int], float] = {}

    def __call__(self, group: Group) -> GroupFit:
        """Return the fit of a group of experts, by their numbers, with the prior as its penalty."""
        if group not in self._fits:
            alone = -np.inf if len(group) == 1 else sum(self(frozenset((k,))).point.objective for k in sorted(group))
            model = self._everyone.of_experts(sorted(group))
            # A climb so far below the members alone is broken off early.
            self._fits[group] = best_fit(model.holding(temperature_prior(model), self._ridge), alone - 1000.0)
        return self._fits[group]

    def fitted(self, group: Group) -> bool:
        """Return whether a group was fitted."""
        return group in self._fits

    @property
    def n_fits(self) -> int:
        """Return how many groups were fitted."""
        return len(self._fits)

    def score(self, group: Group) -> float:
        """Return the score of a group."""
        fit = self(group)
        return fit.point.value / self.dispersion - self.price * fit.determined

    def gain(self, first: Group, second: Group) -> float:
        """Return the score that one reward of two groups gains against one each."""
        return self.score(first | second) - self.score(first) - self.score(second)

    def look_from(self, partition: Collection[Group]) -> None:
        """Expand each expert's log-likelihood around the reward of its group in a partition."""
        for group in partition:
            if any(self._near.get(k, (None,))[0] != group for k in group):
                self._near |= {k: (group, near) for k, near in zip(sorted(group), parabolas(self(group)), strict=True)}

    def estimate(self, group: Group) -> float:
        """Return the score of a group, without a fit."""
        key = frozenset((k, self._near[k][0]) for k in group)
        if key not in self._estimates:
            members = [self._near[k][1] for k in sorted(group)]
            rewards = np.sum([near.rewards for near in members], axis=0)
            ridge = np.diag(self._ridge)
            curvature = rewards - np.sum([near.taken(near.prior) for near in members], axis=0)
            slope = np.sum([near.slope for near in members], axis=0)
            theta = np.linalg.solve(curvature + ridge, slope)
            value = sum(near.constant for near in members) + slope @ theta - 0.5 * theta @ curvature @ theta
            # Parameters count as in a fit, where 2π stands for a uniform discount: tr[I (I + Λ)⁻¹] = p − tr[Λ (I + Λ)⁻¹].
            counted = [near.prior + 2 * np.pi * (np.arange(near.prior.size) == 0) for near in members]
            lost = np.sum([near.taken(prior) for near, prior in zip(members, counted, strict=True)], axis=0)
            inverse = np.linalg.inv(rewards - lost + ridge)
            determined = theta.size - float(np.diag(inverse) @ self._ridge)
            for near, prior in zip(members, counted, strict=True):
                alone = np.linalg.inv(near.own + np.diag(prior))
                moved = near.across @ alone
                determined += prior.size - float(prior @ np.diag(alone + moved.T @ inverse @ moved))
            self._estimates[key] = float(value / self.dispersion - self.price * determined)
        return self._estimates[key]

    def promise(self, new: Collection[Group], old: Collection[Group]) -> float:
        """Return what some groups would gain in place of others: exactly where all were fitted, else by estimates."""
        if all(map(self.fitted, new)):
            return sum(map(self.score, new)) - sum(map(self.score, old))
        return sum(map(self.estimate, new)) - sum(map(self.estimate, old))

    def leave_out(self, new: Collection[Group], below: float) -> None:
        """Keep in mind that groups were not fitted, and how far below the best partition they were estimated."""
        for group in new:
            if not self.fitted(group):
                for pair in combinations(sorted(group), 2):
                    self.left_out[pair] = min(self.left_out.get(pair, np.inf), below)

    def why_left_out(self, first: int, second: int) -> str:
        """Return why two experts were never fitted together; empty where they were."""
        pair = min(first, second), max(first, second)
        if pair not in self.left_out or any(first in group and second in group for group in self._fits):
            return ""
        return f"never fitted together: by an estimate {decimals(self.left_out[pair], 0)} below the best"

    def apart(self, first: Group, second: Group, shared: Floats) -> bool:
        """Return whether it is sure that the goals of two groups differ; `shared` are the probabilities between their members."""
        sure = bool((shared <= 1 - SURE).all())
        both = first | second
        if sure and not self.fitted(both) and self.promise([both], [first, second]) < -limits().hopeless:
            return True
        # A fit that was broken off says that experts differ only where it is far behind.
        return sure and (self(both).finished or self.gain(first, second) < -100.0)


def best_fit(model: Likelihood, least: float) -> GroupFit:
    """Return the best end of climbs from discounts that are all alike, and from each member's own best.

    A climb whose objective is still below `least` when the ends are compared is broken off there.
    """
    points = sorted(_starts(model), key=lambda point: -point.objective)[:2]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    end = max((climb(point, max_steps=8, gain=1e-3) for point in points), key=lambda end: end.point.objective)
    if not end.finished and end.point.objective >= least:
        end = climb(end.point, max_steps=150, gain=1e-3)
    return GroupFit(end.point, determined_parameters(end.point), end.finished)


def determined_parameters(point: Point) -> float:
    """Return how many parameters the decisions determine: each counts by the share of its precision that is not the prior's."""
    model = point.likelihood
    matrix = point.curvature()
    discounts = np.arange(model.size)[model.discount_slice]
    matrix[discounts, discounts] += 2 * np.pi  # which stands for a uniform discount
    free = np.ix_(~model.fixed, ~model.fixed)
    return float(np.trace(np.linalg.solve(matrix[free], point.information[free])))


def _starts(model: Likelihood) -> Iterator[Point]:
    for discount in (0.1, 0.5, 0.9):
        point = choice_probability_start(model, np.full(model.n_discounts, discount))
        if point is None:
            continue
        yield point
        apart = None if model.n_discounts == 1 else choice_probability_start(model, own_discounts(point))
        if apart is not None:
            yield apart


def weigh_partitions(scores: Scores, run: Run = Run()) -> tuple[dict[Partition, float], int]:
    """Return the likely partitions of the experts with their probabilities, and how many near the best were not looked around.

    Partitions whose score is further than 7 below the best are not looked around: they have less than a thousandth of its
    weight. None is once more than 400 groups were fitted after the merging. The neighbours of the merged partition are always
    tried, unless they are hopeless: without them its probability would be 1, however many experts there are.
    """
    best = merged(scores, run)
    scored = {best: partition_score(scores, best)}
    rest = [best]
    most = scores.n_fits + 400
    looked_around: set[Partition] = set()
    while rest and scores.n_fits <= most:
        best = max(rest, key=scored.__getitem__)
        looked_around.add(best)
        scores.look_from(best)
        for close in _neighbours(best):
            if close in scored:
                continue
            below = max(scored.values()) - scored[best] - scores.promise(close - best, best - close)
            if below > limits().hopeless and not all(map(scores.fitted, close - best)):
                scores.leave_out(close - best, below)
            else:
                scored[close] = partition_score(scores, close)
        least = max(scored.values()) - 7.0
        rest = [partition for partition in scored if partition not in looked_around and scored[partition] >= least]
    return dict(zip(scored, softmax(np.array(list(scored.values()))).tolist(), strict=True)), len(rest)


def merged(scores: Scores, run: Run) -> Partition:
    """Merge the two groups that promise most and do gain, until no two gain: all that are not hopeless have been fitted then."""
    groups: list[Group] = [frozenset((k,)) for k in range(scores.problem.n_experts)]
    first = len(groups)
    scores.look_from(groups)
    while True:
        promises = {(one, other): scores.promise([one | other], [one, other]) for one, other in combinations(groups, 2)}
        open_ = {
            pair: p for pair, p in promises.items() if p > 0 or (p >= -limits().hopeless and not scores.fitted(pair[0] | pair[1]))
        }
        if not open_:
            break
        one, other = max(open_, key=open_.__getitem__)
        if scores.gain(one, other) > 0:
            groups = [group for group in groups if group not in (one, other)] + [one | other]
            scores.look_from(groups)
            run.progress(1 - len(groups) / first, f"{len(groups)} groups")
    return frozenset(groups)


def partition_score(scores: Scores, partition: Partition) -> float:
    """Return the score of a partition, the sum of its groups'."""
    return sum(scores.score(group) for group in sorted(partition, key=sorted))


def _neighbours(partition: Partition) -> Iterator[Partition]:
    for first, second in combinations(sorted(partition, key=sorted), 2):
        yield partition - {first, second} | {first | second}
    for group in partition:
        for expert in group:
            rest = group - {expert}
            kept = partition - {group} | ({rest} if rest else set())
            if rest:
                yield kept | {frozenset((expert,))}
            for other in kept - {rest}:
                yield kept - {other} | {other | {expert}}


def sharing_probabilities(weights: dict[Partition, float], n_experts: int) -> Floats:
    """Return the probability `(K,K)` that two experts share a goal; on the diagonal that of a goal nobody shares."""
    shared = np.zeros((n_experts, n_experts))
    for partition, weight in weights.items():
        for group in map(sorted, partition):
            if len(group) == 1:
                shared[group[0], group[0]] += weight
            for i, j in combinations(group, 2):
                shared[i, j] += weight
                shared[j, i] += weight
    return shared
