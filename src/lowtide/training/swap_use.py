"""Where a training's values go when they leave the device: opened, measured and given back with the training."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from lowtide.device.swap import SwapSpace, Tier, measure_copies, measure_slowdown, open_space, usual_tier
from lowtide.errors import InputError, shown
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.problem import Lanes
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.records.transfer import TransferSample
from lowtide.training.undo import undo_bytes

log = logging.getLogger(__name__)

CHOICES = ("off", "disk", "host", "auto")
LEAST_BYTES = 2**18
"""A smaller value is not worth a copy."""


def check_swap(swap: str, folder: Path | None) -> None:
    """Refuse what cannot be meant."""
    if swap not in CHOICES:
        raise InputError(f"swap must be one of {', '.join(CHOICES)}, not {shown(swap)}")
    if folder is not None and swap in ("off", "host"):
        raise InputError(
            f"a folder to swap into is for swapping to disk, but swap is {shown(swap)}: choose disk or auto"
        )


class SwapUse:
    """The swap space of one training; nothing is opened before it is needed."""

    def __init__(self, swap: str, folder: Path | None) -> None:
        check_swap(swap, folder)
        self.swap = swap
        self.folder = folder
        self.space: SwapSpace | None = None
        self._samples: tuple[TransferSample, ...] = ()
        self._slowdown = 0.0

    def lanes(self, graph: StepGraph) -> Lanes | None:
        """How values of `graph` can leave the device; None where they shall not, or where that saves nothing."""
        tier = self._tier(graph.device)
        if tier is None:
            return None
        space = self.open(graph.device)
        if space.in_memory and self.swap == "auto":
            log.warning("%s: nothing is swapped; give a folder on a real disk", space.kind)
            self.close()
            return None
        both = ("copy", "copy") if tier == "disk" else ("out", "in")
        return Lanes(*both, least_bytes=LEAST_BYTES, undo_bytes=undo_bytes(graph))

    def open(self, device: torch.device) -> SwapSpace:
        """The space, opened now if it was not."""
        tier = self._tier(device)
        if tier is None:
            raise InputError("this plan swaps values: give swap='disk' or 'auto' (--swap) to train with it")
        if self.space is None:
            self.space = open_space(tier, device, self.folder)
        return self.space

    def measured(self, profile: Profile) -> Profile:
        """`profile` with what copies cost, measured once through the calls that training makes."""
        assert self.space is not None
        if not self._samples:
            largest = max((storage.bytes for storage in profile.storages if not storage.resident), default=0)
            self._samples = measure_copies(self.space, largest)
            self._slowdown = measure_slowdown(self.space)
        return replace(profile, transfer=self._samples, transfer_tier=self.space.kind, transfer_drag=self._slowdown)

    def make_room(self, plans: Iterable[StepPlan], device: torch.device) -> None:
        """Room for all that these plans have off the device at once; before any step, so that a full disk is no
        surprise. Where nothing is swapped, the space is closed."""
        room = max((Forecast(plan).swapped_bytes for plan in plans), default=0)
        if room:
            self.open(device).reserve(room)
        else:
            self.close()

    def close(self) -> None:
        """Give it back."""
        if self.space is not None:
            self.space.close()
            self.space = None

    def _tier(self, device: torch.device) -> Tier | None:
        match self.swap:
            case "off":
                return None
            case "auto":
                return usual_tier(device)
            case "disk":
                return "disk"
            case _:
                return "host"
