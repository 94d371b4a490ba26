"""Infer the one reward several experts share, and how far ahead each of them plans."""

from multihorizon import domains
from multihorizon.demonstrations import Demonstrations
from multihorizon.entropy import theory
from multihorizon.evaluation import causal_entropy, evaluate, feature_counts, occupancy
from multihorizon.exact.closed_form_start import closed_form_start
from multihorizon.exact.feasibility import FeasibilityGrid, feasibility_at, feasibility_grid
from multihorizon.exact.identification import Identification
from multihorizon.exact.identify import identify
from multihorizon.exact.rank_test import RankGrid, RankTest, rank_grid, rank_test
from multihorizon.experts import Expert
from multihorizon.generalization import GeneralizationError, generalization_error
from multihorizon.gymnasium_env import gymnasium_reward
from multihorizon.intervals import discount_intervals
from multihorizon.mdp import MDP
from multihorizon.planning import plan
from multihorizon.problem import Problem
from multihorizon.programs.sequential import SequentialLP
from multihorizon.search import Bayesian, Grid
from multihorizon.soft_planning import soft_plan
from multihorizon.solution import Solution, Status, Trace
from multihorizon.solve import solve
from multihorizon.solvers.closed_form import ClosedForm
from multihorizon.solvers.lpirl import LPIRL
from multihorizon.solvers.maximum_likelihood import MaximumLikelihood
from multihorizon.solvers.mce import MCE
from multihorizon.solvers.mplp import MPLP
from multihorizon.solvers.mpmce import MPMCE
from multihorizon.solvers.mpml import MPML
from multihorizon.solvers.naive_lp import NaiveLP
from multihorizon.statistics.analysis import Analysis, analyse
from multihorizon.statistics.bootstrap import Bootstrap, bootstrap
from multihorizon.statistics.dynamics import estimate_mdp, impossible_moves
from multihorizon.statistics.horizon_tests import SharedDiscountTest, pairwise_tests, shared_discount_test
from multihorizon.statistics.model_checks import ModelChecks, check_model

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
