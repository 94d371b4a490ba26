"""A problem whose task is known from samples only: logged steps between states that are vectors."""

from __future__ import annotations

from typing import Any

from multihorizon.problem import Problem
from multihorizon.tables.steps import Steps


class SampledProblem(Problem):
    """Experts who act for one reward in a task that only their own logged steps describe.

    Args:
        steps: the decisions, with the states they led to.

    Example:
        >>> from multihorizon.domains import navigation
        >>> SampledProblem(navigation().simulate(decisions=100)).names
        ('near', 'middle', 'far')
    """

    def __init__(self, steps: Steps) -> None:
        if not isinstance(steps, Steps):
            raise ValueError(f"steps must be Steps, received {type(steps).__name__}")
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "parameter_names", ())

    steps: Steps

    def with_basis(self, names: tuple[str, ...]) -> SampledProblem:
        """The same problem with a reward of these basis functions."""
        made = SampledProblem(self.steps)
        object.__setattr__(made, "parameter_names", names)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """The experts' names `(K,)`."""
        return self.steps.experts

    @property
    def experts(self) -> Any:
        """Raises: the experts of a sampled problem act in no finite task."""
        raise ValueError("this needs a problem with a finite task, received one of logged steps: solve it with SieveLikelihood()")

    def __repr__(self) -> str:
        return f"SampledProblem({len(self.steps)} steps in {', '.join(self.steps.coordinates)}, experts {', '.join(self.names)})"


def require_sampled(problem: Problem) -> SampledProblem:
    """The problem, if it is sampled; raises otherwise."""
    if not isinstance(problem, SampledProblem):
        raise ValueError("SieveLikelihood needs a problem of logged steps: make one with SampledProblem(Steps.from_frame(…))")
    return problem
