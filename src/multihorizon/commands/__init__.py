"""The commands of the program, one module each.

Read `options` (what each command takes), `console` (the terminal, progress, errors) and `given` (what the options mean), then the
commands in any order. `fit_steps` is the part of `fit` for states that are vectors. `cli.py` puts them together.
"""
