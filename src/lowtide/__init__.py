"""lowtide: PyTorch training that fits a number of bytes, bit for bit equal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.graph.step_graph import StepGraph as StepGraph
    from lowtide.planning.policies import BudgetInfeasible as BudgetInfeasible
    from lowtide.profiling.profile import profile as profile
    from lowtide.records.profile import Profile as Profile
    from lowtide.tracing.capture import capture as capture
    from lowtide.training.check import check as check
    from lowtide.training.train_step import TrainStep as TrainStep
    from lowtide.training.train_step import train_step as train_step

# Loaded when first asked for: the planner and the command line start without torch.
_PUBLIC = {
    "BudgetInfeasible": "lowtide.planning.policies",
    "Profile": "lowtide.records.profile",
    "StepGraph": "lowtide.graph.step_graph",
    "capture": "lowtide.tracing.capture",
    "check": "lowtide.training.check",
    "profile": "lowtide.profiling.profile",
    "TrainStep": "lowtide.training.train_step",
    "train_step": "lowtide.training.train_step",
}
__all__ = ["BudgetInfeasible", "Profile", "StepGraph", "TrainStep", "capture", "check", "profile", "train_step"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
