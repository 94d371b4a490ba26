"""Problems with a known answer: the paper's three domains with their experts and task variants, the meadow of the demo, grids of
any size, random MDPs, a task played by people, with simulated participants, and a walk among continuous states.

Read `base` (what a domain is, and how well a learned reward serves in its variants), then `grids` and `people`.
"""

from multihorizon.domains.base import Domain, Task
from multihorizon.domains.grids import big_small, cliff, gridworld, meadow, random_mdp, toy
from multihorizon.domains.people import Navigation, SimulatedPersons, SpaceAdventure, navigation, space_adventure

__all__ = [
    "Domain",
    "Navigation",
    "SimulatedPersons",
    "SpaceAdventure",
    "Task",
    "big_small",
    "cliff",
    "gridworld",
    "meadow",
    "navigation",
    "random_mdp",
    "space_adventure",
    "toy",
]
