"""The default policy: least time under a budget, with a certified bound. docs/planner.md explains the method."""

from lowtide.planning.optimal.frontier import frontier
from lowtide.planning.optimal.swapping.joint import plan

__all__ = ["frontier", "plan"]
