"""Problems with a known answer: the paper's three domains with their experts and task variants, the meadow of the demo, grids of
any size, random MDPs, and a task played by people, with simulated persons.

Read `base` (what a domain is), then `toy`, `grids`, `random` and `space_adventure`, then `generalization` (how well a learned
reward serves in variants of a domain).
"""

from multihorizon.domains.base import Domain, Task
from multihorizon.domains.grids import big_small, cliff, gridworld, meadow
from multihorizon.domains.random import random_mdp
from multihorizon.domains.space_adventure import SimulatedPersons, SpaceAdventure, space_adventure
from multihorizon.domains.toy import toy

__all__ = [
    "Domain",
    "SimulatedPersons",
    "SpaceAdventure",
    "Task",
    "big_small",
    "cliff",
    "gridworld",
    "meadow",
    "random_mdp",
    "space_adventure",
    "toy",
]
