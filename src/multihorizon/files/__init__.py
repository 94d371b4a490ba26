"""Files in and out, checked, below everything that gives their content a meaning.

Read in this order: `labels` (one text per label, their order, which name a label stands for), `opening` (files found, unpacked,
recognised), `table` (columns with the place of each row), `reading` (CSV and Parquet into tables), `saved` (`.npz` and JSON that
this library wrote), `output` (directories for results).
"""
