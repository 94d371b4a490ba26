"""What if: what people will do when something changes, and the smallest bonus that is enough.

Read in this order: `change` (what changes), `sources` (what is known before), `plans` (policies before and after), `outcomes`
(what comes of them), `predict` (the answer and how sure it is), `nudge` (the smallest bonus).
"""
