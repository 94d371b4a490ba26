"""From files to checked values, under the user's own names.

Read in this order: `reading` (a file becomes a table), `demonstrations` (a table of decisions, checked, loaded or counted: who
did what in which state), `steps` (the same where states are vectors), `side_tables` (features, groups, persons, transitions),
`dynamics` (transitions estimated from decisions, or compared with them), `check` (all that is wrong with a table, and the table
mended).
"""
