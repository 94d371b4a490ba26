"""From files to checked values, under the user's own names.

Read in this order: `reading` (a file becomes a table), `rules` (what a table of decisions must be, what is said where it is not,
what can be fixed, and time stamps), `demonstrations` (a table of decisions: who did what in which state, read or drawn),
`counting` (the same of files that are too large to be loaded), `steps` (the same where states are vectors), `side_tables`
(features, groups, people, transitions), `dynamics` (transitions estimated from decisions, or compared with them), `check` (all
that is wrong with a table, and the table fixed).
"""

from multihorizon.data import counting as counting
