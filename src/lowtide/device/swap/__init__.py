"""Swap space: values leave the device in the background and come back, bit for bit, when they are asked for."""

import tempfile
from pathlib import Path
from typing import Literal

import torch

from lowtide.device import cuda
from lowtide.device.swap.disk import DiskSpace
from lowtide.device.swap.host import HostSpace
from lowtide.device.swap.measure import measure_copies, measure_slowdown
from lowtide.device.swap.space import Parked, SwapError, SwapSpace, Waited
from lowtide.device.swap.swap_file import SwapFile

__all__ = [
    "Parked",
    "SwapError",
    "SwapSpace",
    "Tier",
    "Waited",
    "measure_copies",
    "measure_slowdown",
    "open_space",
    "usual_tier",
]

Tier = Literal["disk", "host"]


def usual_tier(device: torch.device) -> Tier:
    """Where values of `device` go when nobody says where."""
    return "host" if cuda.type_of(device) == "cuda" else "disk"


def open_space(tier: Tier, device: torch.device, folder: Path | None = None) -> SwapSpace:
    """Swap space for values on `device`: `folder` is for the disk, the folder of temporary files where it is None."""
    if tier == "host":
        if cuda.type_of(device) != "cuda":
            raise SwapError(f"values on {device} are in host memory already: swap them to disk")
        return HostSpace(device)
    if cuda.type_of(device) != "cpu":
        raise SwapError(f"values on {device} cannot be swapped to disk: swap them to host memory")
    return DiskSpace(SwapFile(folder or Path(tempfile.gettempdir())))
