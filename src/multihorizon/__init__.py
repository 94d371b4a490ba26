"""Infer the one reward several experts share, and how far ahead each of them plans.

The names below are loaded when they are first used, so that `import multihorizon` takes no time. Type checkers and editors read
them from `__init__.pyi`; a test sees to it that the two lists agree.
"""

import warnings
from importlib import import_module
from typing import Any

#: The module of each name.
_HOMES = {
    # The nouns.
    "MDP": "mdp",
    "Expert": "problem",
    "Demonstrations": "data.demonstrations",
    "Problem": "problem",
    "Steps": "data.steps",
    "SampledProblem": "problem",
    "Solution": "solution",
    "Status": "solution",
    # What you can write yourself.
    "Solver": "driver",
    "Search": "driver",
    "Lookahead": "horizon",
    "Evidence": "solution",
    "IntervalSource": "estimate",
    # The solvers and their searches.
    "LPIRL": "programs.solvers",
    "NaiveLP": "programs.solvers",
    "MPLP": "programs.solvers",
    "MCE": "entropy.mce",
    "MPML": "paper.mpml",
    "MPMCE": "entropy.mpmce",
    "ClosedForm": "exact.closed_form",
    "MaximumLikelihood": "likelihood.maximum_likelihood",
    "Population": "population.solver",
    "SieveLikelihood": "likelihood.sieve",
    "Splines": "choice.sieve_model",
    "Exponential": "horizon",
    "Depth": "horizon",
    "Hyperbolic": "horizon",
    "QuasiHyperbolic": "horizon",
    "FreeWeights": "horizon",
    "Grid": "driver",
    "Bayesian": "driver",
    "SequentialLP": "programs.search",
    # The verbs, and what they return.
    "plan": "planning.plan",
    "soft_plan": "planning.plan",
    "PresentBias": "planning.plan",
    "discount_intervals": "planning.breakpoints",
    "evaluate": "planning.plan",
    "occupancy": "planning.plan",
    "gymnasium_reward": "mdp",
    "estimate_mdp": "data.dynamics",
    "solve": "driver",
    "load": "report.files",
    "log_likelihood": "choice.model",
    "identify": "exact.identify",
    "goals": "questions.goals",
    "compare_goals": "questions.goal_comparison",
    "bootstrap": "questions.study",
    "posterior": "questions.posterior",
    "cluster": "parallel",
    "shared_discount_test": "questions.sharing",
    "pairwise_tests": "questions.sharing",
    "compare_lookahead": "questions.lookahead_comparison",
    "carry_over": "questions.carrying_over",
    "simulate_study": "questions.study",
    "design": "questions.design",
    "check_model": "questions.model_checks",
    "robustness": "questions.robustness",
    "track": "questions.track",
    "predict": "questions.whatif.predict",
    "nudge": "questions.whatif.nudge",
    "reward_functions": "likelihood.sieve",
    "analyse": "analysis",
    "generalization_error": "domains.base",
}
_SUBMODULES = {"datasets": "datasets", "domains": "domains", "theory": "paper.theory"}
#: Names that moved or have another name now; the old ones still work here in this release, with a warning.
_MOVED = {
    "Analysis": "analysis.Analysis",
    "Bootstrap": "questions.study.Bootstrap",
    "FeasibilityGrid": "paper.theory.FeasibilityGrid",
    "Functions": "likelihood.sieve.RewardFunctions",
    "GeneralizationError": "domains.base.GeneralizationError",
    "GoalEstimates": "questions.goals.Goals",
    "Goals": "questions.goals.Goals",
    "Identification": "exact.identify.Identification",
    "LookaheadComparison": "questions.lookahead_comparison.LookaheadComparison",
    "ModelChecks": "questions.model_checks.ModelChecks",
    "RankGrid": "paper.theory.RankGrid",
    "RankTest": "paper.theory.RankTest",
    "Recovery": "questions.study.Recovery",
    "SampledAnalysis": "analysis.Analysis",
    "analyse_steps": "analysis.analyse_steps",
    "SharedDiscountTest": "questions.sharing.SharedDiscountTest",
    "SharedGoalTest": "questions.sharing.SharedGoalTest",
    "Trace": "solution.Trace",
    "causal_entropy": "planning.plan.causal_entropy",
    "closed_form_start": "exact.closed_form.closed_form_start",
    "feasibility_at": "paper.theory.feasibility_at",
    "feasibility_grid": "paper.theory.feasibility_grid",
    "feature_counts": "planning.plan.feature_counts",
    "functions": "reward_functions",
    "impossible_moves": "data.dynamics.impossible_moves",
    "rank_grid": "paper.theory.rank_grid",
    "rank_test": "paper.theory.rank_test",
    "recover": "simulate_study",
    "sampled_discount_tests": "questions.sharing.sampled_discount_tests",
    "unlikely_moves": "data.dynamics.unlikely_moves",
}

__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        value = getattr(import_module(f"multihorizon.{_HOMES[name]}"), name)
    elif name == "__version__":
        value = import_module("multihorizon.result").package_version()
    elif name in _SUBMODULES:
        value = import_module(f"multihorizon.{_SUBMODULES[name]}")
    elif name in _MOVED:
        warnings.warn(f"multihorizon.{name} is now multihorizon.{_MOVED[name]}", DeprecationWarning, stacklevel=2)
        home, _, new = f"multihorizon.{_MOVED[name]}".rpartition(".")
        return getattr(import_module(home), new)
    else:
        raise AttributeError(f"module 'multihorizon' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
