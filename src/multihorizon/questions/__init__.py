"""What is asked of a solution: do they share a discount or a goal, does the model fit, what could a study show.

Each module asks one question, and none needs another to be understood: `shared_discount` (do they look equally far ahead?),
`shared_goal` and `goals` (do they want the same, and if not, who does?), `bootstrap` (how far would other tables move the
answer?), `posterior` (what is likely, given the decisions and what was believed before?), `model_checks` (does the model fit?),
`lookahead_comparison` (in what shape do they look ahead?), `carrying_over` (does a horizon belong to the person or to the
situation?), and `study` (what can this design show?). A question that a kind of solution cannot answer says so in a sentence.
"""
