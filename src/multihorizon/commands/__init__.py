"""The commands of the program, one module each.

Read `console` (the terminal, progress, errors) and `options` (what several commands take), then the commands in any order.
`fit_steps` is the part of `fit` for states that are vectors. `cli.py` puts them together.
"""
