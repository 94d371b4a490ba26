"""What if: what people will do when something changes, and the smallest bonus that is enough.

Read in this order: `change` (what changes, what is known before, and the plans before and after), `predict` (what comes of them,
and how sure it is), `nudge` (the smallest bonus).
"""
