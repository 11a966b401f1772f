"""lowtide: PyTorch training that fits a number of bytes, bit for bit equal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.compiling.settings import configure as configure
    from lowtide.device.swap.space import SwapError as SwapError
    from lowtide.errors import BatchMismatch as BatchMismatch
    from lowtide.errors import CaptureError as CaptureError
    from lowtide.errors import EagerMismatch as EagerMismatch
    from lowtide.errors import InputError as InputError
    from lowtide.errors import LowtideError as LowtideError
    from lowtide.errors import MissingExtra as MissingExtra
    from lowtide.errors import PlanMismatch as PlanMismatch
    from lowtide.errors import ProfileError as ProfileError
    from lowtide.errors import RankFailed as RankFailed
    from lowtide.errors import RewriteError as RewriteError
    from lowtide.errors import StaleCapture as StaleCapture
    from lowtide.fitting.fit import fit as fit
    from lowtide.fitting.record import Fit as Fit
    from lowtide.graph.step_graph import StepGraph as StepGraph
    from lowtide.integrations.accelerate import LowtidePlugin as LowtidePlugin
    from lowtide.integrations.planned_trainer import LowtideTrainer as LowtideTrainer
    from lowtide.integrations.trainer import LowtideCallback as LowtideCallback
    from lowtide.planning.policies import BudgetInfeasible as BudgetInfeasible
    from lowtide.profiling.profile import profile as profile
    from lowtide.records.profile import Profile as Profile
    from lowtide.tracing.capture import capture as capture
    from lowtide.training.check import check as check
    from lowtide.training.train_step import TrainStep as TrainStep
    from lowtide.training.train_step import train_step as train_step

# Loaded when first asked for: the planner and the command line start without torch.
_PUBLIC = {
    "BatchMismatch": "lowtide.errors",
    "BudgetInfeasible": "lowtide.planning.policies",
    "CaptureError": "lowtide.errors",
    "EagerMismatch": "lowtide.errors",
    "Fit": "lowtide.fitting.record",
    "InputError": "lowtide.errors",
    "LowtideCallback": "lowtide.integrations.trainer",
    "LowtideError": "lowtide.errors",
    "LowtidePlugin": "lowtide.integrations.accelerate",
    "LowtideTrainer": "lowtide.integrations.planned_trainer",
    "MissingExtra": "lowtide.errors",
    "PlanMismatch": "lowtide.errors",
    "Profile": "lowtide.records.profile",
    "ProfileError": "lowtide.errors",
    "RankFailed": "lowtide.errors",
    "RewriteError": "lowtide.errors",
    "StaleCapture": "lowtide.errors",
    "StepGraph": "lowtide.graph.step_graph",
    "SwapError": "lowtide.device.swap.space",
    "TrainStep": "lowtide.training.train_step",
    "capture": "lowtide.tracing.capture",
    "check": "lowtide.training.check",
    "configure": "lowtide.compiling.settings",
    "fit": "lowtide.fitting.fit",
    "profile": "lowtide.profiling.profile",
    "train_step": "lowtide.training.train_step",
}
__all__ = [
    "BatchMismatch",
    "BudgetInfeasible",
    "CaptureError",
    "EagerMismatch",
    "Fit",
    "InputError",
    "LowtideCallback",
    "LowtideError",
    "LowtidePlugin",
    "LowtideTrainer",
    "MissingExtra",
    "PlanMismatch",
    "Profile",
    "ProfileError",
    "RankFailed",
    "RewriteError",
    "StaleCapture",
    "StepGraph",
    "SwapError",
    "TrainStep",
    "capture",
    "check",
    "configure",
    "fit",
    "profile",
    "train_step",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
