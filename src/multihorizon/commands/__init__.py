"""The commands of the program, one module each.

Read `console` (the terminal, progress, errors) and `options` (what several commands take), then `demo`, `fit`, `identify` and
`reproduce` in any order. `cli.py` puts them together.
"""
