"""Infer the one reward several experts share, and how far ahead each of them plans."""

from multihorizon import domains
from multihorizon.domains.generalization import GeneralizationError, generalization_error
from multihorizon.entropy import theory
from multihorizon.entropy.mce import MCE
from multihorizon.entropy.mpmce import MPMCE
from multihorizon.entropy.mpml import MPML
from multihorizon.experts import Expert
from multihorizon.gymnasium_env import gymnasium_reward
from multihorizon.likelihood.bootstrap import Bootstrap, bootstrap
from multihorizon.likelihood.horizon_tests import SharedDiscountTest, pairwise_tests, shared_discount_test
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.model_checks import ModelChecks, check_model
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import discount_intervals
from multihorizon.planning.evaluation import causal_entropy, evaluate, feature_counts, occupancy
from multihorizon.planning.plan import plan
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem
from multihorizon.programs.lpirl import LPIRL
from multihorizon.programs.mplp import MPLP
from multihorizon.programs.naive_lp import NaiveLP
from multihorizon.programs.sequential import SequentialLP
from multihorizon.recovery.closed_form_solver import ClosedForm
from multihorizon.recovery.closed_form_start import closed_form_start
from multihorizon.recovery.feasibility import FeasibilityGrid, feasibility_at, feasibility_grid
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import identify
from multihorizon.recovery.rank_test import RankGrid, RankTest, rank_grid, rank_test
from multihorizon.report.analysis import Analysis, analyse
from multihorizon.search import Bayesian, Grid
from multihorizon.solution import Solution, Status, Trace
from multihorizon.solve import solve
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tables.dynamics import estimate_mdp, impossible_moves

__all__ = [
    "LPIRL",
    "MCE",
    "MDP",
    "MPLP",
    "MPMCE",
    "MPML",
    "Analysis",
    "Bayesian",
    "Bootstrap",
    "ClosedForm",
    "Demonstrations",
    "Expert",
    "FeasibilityGrid",
    "GeneralizationError",
    "Grid",
    "Identification",
    "MaximumLikelihood",
    "ModelChecks",
    "NaiveLP",
    "Problem",
    "RankGrid",
    "RankTest",
    "SequentialLP",
    "SharedDiscountTest",
    "Solution",
    "Status",
    "Trace",
    "analyse",
    "bootstrap",
    "causal_entropy",
    "check_model",
    "closed_form_start",
    "discount_intervals",
    "domains",
    "estimate_mdp",
    "evaluate",
    "feasibility_at",
    "feasibility_grid",
    "feature_counts",
    "generalization_error",
    "gymnasium_reward",
    "identify",
    "impossible_moves",
    "occupancy",
    "pairwise_tests",
    "plan",
    "rank_grid",
    "rank_test",
    "shared_discount_test",
    "soft_plan",
    "solve",
    "theory",
]
