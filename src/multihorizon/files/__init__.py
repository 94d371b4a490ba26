"""Files read and written with checks; what their content means is decided in other rooms.

Read in this order: `labels` (one text per label, their order, which name a label stands for), `opening` (files found, unpacked,
recognised), `csv_text` (CSV as Python reads it, line by line), `scan` (files as a table of a database), `table` (columns with the
place of each row), `reading` (a whole table in memory), `saved` and `saved_mdp` (`.npz` and JSON that this library wrote),
`output` (directories for results).
"""
