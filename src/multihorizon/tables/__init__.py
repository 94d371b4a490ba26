"""Tables of decisions, transitions and features: from files to checked values, under the user's own names.

Read in this order: `cells` (what a table of decisions comes down to), `rows` (such a table in memory), `spelling` and `counting`
(one that a database checks and counts), `counted` (which of the two a file becomes), `demonstrations` (who did what in which
state; `simulation` makes such tables), `transitions` (where actions lead, from a file), `features` (what rewards are tied to),
`groups` (who shares a discount), `persons` (covariates), `dynamics` (transitions estimated from decisions, or compared with
them), `check` (all that is wrong with a table, and the table mended).
"""
