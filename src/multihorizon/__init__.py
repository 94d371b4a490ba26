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
    "Expert": "experts",
    "Demonstrations": "tables.demonstrations",
    "Problem": "problem",
    "Steps": "tables.steps",
    "SampledProblem": "continuous.sampled",
    "Solution": "solution",
    "Status": "solution",
    "Trace": "solution",
    # The solvers and their searches.
    "LPIRL": "programs.solvers",
    "NaiveLP": "programs.solvers",
    "MPLP": "programs.solvers",
    "MCE": "entropy.mce",
    "MPML": "entropy.mpml",
    "MPMCE": "entropy.mpmce",
    "ClosedForm": "recovery.closed_form",
    "MaximumLikelihood": "likelihood.maximum_likelihood",
    "Population": "likelihood.population",
    "SieveLikelihood": "continuous.solver",
    "Splines": "continuous.basis",
    "Exponential": "lookahead",
    "Depth": "lookahead",
    "Hyperbolic": "lookahead",
    "QuasiHyperbolic": "lookahead",
    "FreeWeights": "lookahead",
    "Grid": "search",
    "Bayesian": "search",
    "SequentialLP": "programs.sequential",
    # The verbs, and what they return.
    "plan": "planning.plan",
    "soft_plan": "planning.soft_plan",
    "discount_intervals": "planning.breakpoints",
    "evaluate": "planning.evaluation",
    "occupancy": "planning.evaluation",
    "feature_counts": "planning.evaluation",
    "causal_entropy": "planning.evaluation",
    "gymnasium_reward": "gymnasium_env",
    "estimate_mdp": "tables.dynamics",
    "impossible_moves": "tables.dynamics",
    "unlikely_moves": "tables.dynamics",
    "solve": "driver",
    "identify": "recovery.identify",
    "Identification": "recovery.identification",
    "goals": "likelihood.goals",
    "Goals": "recovery.goals",
    "GoalEstimates": "likelihood.goals",
    "SharedGoalTest": "likelihood.goal_test",
    "bootstrap": "likelihood.bootstrap",
    "Bootstrap": "likelihood.bootstrap",
    "cluster": "parallel",
    "shared_discount_test": "likelihood.horizon_tests",
    "pairwise_tests": "likelihood.horizon_tests",
    "SharedDiscountTest": "likelihood.horizon_tests",
    "compare_lookahead": "likelihood.lookahead_comparison",
    "LookaheadComparison": "likelihood.lookahead_comparison",
    "recover": "likelihood.recover",
    "Recovery": "likelihood.recovered",
    "check_model": "likelihood.model_checks",
    "ModelChecks": "likelihood.model_checks",
    "functions": "continuous.functions",
    "Functions": "continuous.functions",
    "sampled_discount_tests": "continuous.discount_tests",
    "analyse_steps": "report.sampled_analysis",
    "SampledAnalysis": "report.sampled_analysis",
    "analyse": "report.analysis",
    "Analysis": "report.analysis",
    "generalization_error": "domains.generalization",
    "GeneralizationError": "domains.generalization",
}
_SUBMODULES = ("domains", "theory")
#: Names that moved, and their new homes; they still work here in this release, with a warning.
_MOVED = {
    "FeasibilityGrid": "theory",
    "RankGrid": "recovery.feasibility",
    "RankTest": "theory",
    "feasibility_at": "theory",
    "feasibility_grid": "theory",
    "rank_grid": "recovery.feasibility",
    "rank_test": "theory",
    "closed_form_start": "recovery.closed_form",
}

__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        found = getattr(import_module(f"multihorizon.{_HOMES[name]}"), name)
    elif name == "__version__":
        found = import_module("multihorizon.solution").package_version()
    elif name in _SUBMODULES:
        found = import_module(f"multihorizon.{name}")
    elif name in _MOVED:
        home = f"multihorizon.{_MOVED[name]}"
        warnings.warn(f"multihorizon.{name} is now {home}.{name}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), name)
    else:
        raise AttributeError(f"module 'multihorizon' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
