"""A bound for programs whose forward part hangs on a spine: storages through which all of it passes, one after another.

`links.py` cuts forward there, `choices.py` says what a link can do and at what price, `bound.py` combines links to
groups, from the first to the last, in `cells.py` (compiled). docs/planner.md has the argument.
"""
