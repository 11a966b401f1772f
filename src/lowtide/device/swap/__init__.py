"""Swap space: values leave the device in the background and come back, bit for bit, when they are asked for."""

from lowtide.device.swap.drag import measure_drag
from lowtide.device.swap.measure import Sample, measure
from lowtide.device.swap.opening import open_space
from lowtide.device.swap.space import Parked, SwapError, SwapSpace, Waited

__all__ = ["Parked", "Sample", "SwapError", "SwapSpace", "Waited", "measure", "measure_drag", "open_space"]
