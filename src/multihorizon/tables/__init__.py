"""Tables of decisions, transitions and features: from files to checked values, under the user's own names.

Read in this order: `demonstrations` (who did what in which state; `simulation` makes such tables), `transitions` (where actions
lead, from a file), `features` (what rewards are tied to), `groups` (who shares a discount), `dynamics` (transitions estimated
from decisions, or compared with them).
"""
