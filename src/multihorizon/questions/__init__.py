"""Analyses of a solution: shared discount factors and goals, model fit, power of studies, counterfactuals.

Most modules ask one question of a solution and can be read alone: `sharing` (do they look equally far ahead, and want the same?),
`goals` (if not, who does?), `posterior` (what is likely, given the decisions and what was believed before?), `model_checks` (does
the model fit?), `lookahead_comparison` (in what shape do they look ahead?), `carrying_over` (does a horizon belong to the person
or to the situation?), and `study` (what can this design show, and how far would other tables move the answer?). A question that a
kind of solution cannot answer says so in a sentence.

Others ask it of a whole fit, as `analysis.analyse` makes it: `fitted`, `horizons` and `differences` add results to it, and answer
in words with a `Finding`.
"""
