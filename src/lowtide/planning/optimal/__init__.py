"""The default policy: least time under a budget, with a certified bound. docs/planner.md explains the method."""

from lowtide.planning.optimal.swapping.joint import plan
from lowtide.planning.optimal.swapping.lanes_frontier import frontier

__all__ = ["frontier", "plan"]
