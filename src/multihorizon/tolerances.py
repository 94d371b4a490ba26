"""Numbers that several rooms share, each with what it decides and why it has this size.

A tolerance that only one module uses stays in that module, under a name that says what it decides.
"""

from __future__ import annotations

#: The largest discount that is searched or reported where a policy never ends: at 1 its values do not exist. It stands for a
#: horizon of 10,000 steps; recorded decisions do not tell longer horizons apart, and values keep twelve of their digits.
ENDLESS_DISCOUNT = 0.9999
#: The largest discount at which values of a policy that never ends are computed exactly, where a formula follows them towards 1
#: without searching: `(I − γT)` keeps half of the sixteen digits.
LARGEST_SOLVABLE_DISCOUNT = 1 - 1e-7
#: Differences of values below this share of the largest value are rounding: sixteen digits less four lost in a linear solve.
ROUNDING = 1e-12
#: Singular values below this share of the largest count as zero. Structural zeros come out near 1e-15, and the weakest
#: directions that matter on our domains lie above 1e-7.
RANK_TOLERANCE = 1e-9
#: Eigenvalues of an information matrix with unit diagonal below this share of the largest count as zero. Eigenvalues are squares
#: of singular values: structural zeros come out near 1e-16, the weakest directions that matter above 1e-9.
INFORMATION_RANK_TOLERANCE = 1e-12
#: Added under a division to keep 0/0 from raising; no quantity of ours is this small and not zero.
TINY = 1e-300
#: Moves that are added to each state and action where transitions are estimated: half a move, little against the dozens that an
#: estimate needs anyway.
SMOOTHING = 0.5
#: The largest number of a feature or of a known reward lies between these. Numbers have 16 digits, and rewards are weighed
#: against temperatures near 1: in larger or smaller units the search for the best fit stops in the wrong place.
SMALLEST_UNIT, LARGEST_UNIT = 1e-4, 1e8
