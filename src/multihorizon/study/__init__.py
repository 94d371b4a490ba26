"""The paper's study, and what goes beyond it, on top of public names only: `multihorizon reproduce`.

Read in this order:

* `paper` (what the paper prints), `settings` (how large the study is, and what the paper leaves open);
* the parts, each with `compute`: `toy_study`, `learned`, `generalize`, `convergence`, `identifiability`, `theory_checks`,
  `thresholds`, `choices`;  `run` computes them one after the other;
* `claim`, `claims_theory`, `claims_learned`, `claims`: the paper's claims beside our numbers;
* `figures`, `tables`, `report`: how it is shown.
"""
