"""The memory of a training's steps: one block, in which every allocation of a known step has an address of its own.

The first usual step of its kind is recorded: what it takes, in which order, and when that is given back. The planner
chooses addresses (`planning.addresses`), and from the next step on the allocator shim hands them out. So a step takes
no memory from the system and gives none back: there are no page faults, and no holes. See docs/arena.md.
"""

import ctypes
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray

from lowtide.device import cuda
from lowtide.device.limit import trim
from lowtide.device.shim import compiler, load_shim
from lowtide.planning.addresses.blocks import Blocks
from lowtide.planning.addresses.place import Placement, place_apart
from lowtide.units import format_bytes

log = logging.getLogger(__name__)
Ints = NDArray[np.int64]

RECORDINGS = 3
"""How often a kind of step is recorded at most, where later steps turn out to be others."""
OTHERWISE = 0.02
"""Share of a step's bytes that were not as planned from which it is recorded anew."""


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step's allocations were: how many, and how many bytes, each counted when it was asked for."""

    placed: int
    placed_B: int
    """At their planned addresses."""
    kept: int
    kept_B: int
    """Foreseen to outlive the step (the loss, outputs): the ordinary allocator's."""
    unforeseen: int
    unforeseen_B: int
    """Not in the plan: the ordinary allocator's."""
    taken: int
    taken_B: int
    """In the plan, but something else still lived at that address: the ordinary allocator's."""

    @property
    def is_another(self) -> bool:
        """Is it another step than the one that was recorded?"""
        elsewhere = self.unforeseen_B + self.taken_B
        return elsewhere > OTHERWISE * (elsewhere + self.placed_B + self.kept_B)


class Layout:
    """The addresses of one kind of step; empty until one has been recorded."""

    def __init__(self) -> None:
        self.placement: Placement | None = None
        self.recordings = 0
        self._handle: int | None = None
        self._free: finalize[..., Any] | None = None

    def set(self, placement: Placement, bytes_: Ints, offsets: Ints) -> None:
        """All allocations of a step, in order; an offset of -1 is none."""
        self.forget()
        shim = load_shim()
        self._handle = shim.lowtide_layout(len(bytes_), bytes_.ctypes.data, offsets.ctypes.data)
        self._free = finalize(self, shim.lowtide_layout_free, self._handle)
        self.placement = placement

    def forget(self) -> None:
        """Empty again."""
        if self._free is not None:
            self._free()
        self.placement = self._handle = self._free = None

    @property
    def handle(self) -> int | None:
        """The shim's own."""
        return self._handle


class Arena:
    """One block of memory for all kinds of step of one training, which run one at a time."""

    def __init__(self) -> None:
        self._shim = load_shim()
        self._handle: int | None = None
        self._close: finalize[..., Any] | None = None
        self.bytes = 0
        """Of the block; 0 before the first step is known."""
        self.last: StepCounts | None = None
        """Of the last step; None where it did not run at planned addresses."""

    @contextmanager
    def step(self, layout: Layout, *, usual: bool) -> Iterator[None]:
        """Run a step of the kind that `layout` is for in here: by its addresses, or recorded to find them.

        A step that is not `usual`, such as the first one of an optimizer, which makes its state, is not kept.
        """
        self.last = None
        if layout.handle is not None and self._handle is not None:
            with self._by_plan(layout):
                yield
        elif layout.recordings < RECORDINGS and self._shim.lowtide_record_begin():
            self.release()  # this step's memory and that of the steps that are known would be twice the budget
            try:
                yield
            except BaseException:
                self._recorded()
                raise
            recorded = self._recorded()
            if usual:
                self._learn(layout, *recorded)
            self.touch()
        else:
            yield

    def release(self) -> None:
        """The pages go back to the system until `touch`, or until a step uses them; nothing while one does."""
        if self._handle is not None:
            self._shim.lowtide_arena_release(self._handle)

    def touch(self) -> None:
        """All pages are there."""
        if self._handle is not None:
            self._shim.lowtide_arena_touch(self._handle)

    def close(self) -> None:
        """The memory goes back to the system: at once, or with the last tensor in it."""
        if self._close is not None:
            self._close()
        self._handle = self._close = None
        self.bytes = 0

    @contextmanager
    def _by_plan(self, layout: Layout) -> Iterator[None]:
        begun = self._shim.lowtide_step_begin(self._handle, layout.handle)
        try:
            yield
        finally:
            if begun:
                counts = (ctypes.c_int64 * len(fields(StepCounts)))()
                self._shim.lowtide_step_end(counts)
                self.last = StepCounts(*counts)
        if begun and self.last is not None and layout.recordings < RECORDINGS and self.last.is_another:
            log.info("the step's allocations are others than recorded: the next one is recorded anew")
            layout.forget()

    def _recorded(self) -> tuple[Ints, Ints, Ints]:
        """Bytes, begin and end of everything that was allocated; -1 is an end behind the step."""
        handle = ctypes.c_void_p()
        count = self._shim.lowtide_record_end(ctypes.byref(handle))
        found = [np.empty(count, dtype=np.int64) for _ in range(3)]
        self._shim.lowtide_record_read(handle, *(each.ctypes.data for each in found))
        bytes_, begin, end = found
        return bytes_, begin, end

    def _learn(self, layout: Layout, bytes_: Ints, begin: Ints, end: Ints) -> None:
        layout.recordings += 1
        inside = end >= 0
        placement = place_apart(Blocks(begin[inside], end[inside], bytes_[inside]))
        if not placement.extent or not self._grow(placement.extent):
            return
        offsets = np.full(len(bytes_), -1, dtype=np.int64)
        offsets[inside] = placement.offsets
        layout.set(placement, bytes_, offsets)

    def _grow(self, size: int) -> bool:
        """Room for `size` bytes; False where the system has not so much."""
        if size <= self.bytes:
            return True
        self.close()
        trim()
        self._handle = self._shim.lowtide_arena_open(size)
        if self._handle is None:
            log.warning(
                "there are no %s for the step's memory in one piece: its tensors lie where the allocator puts them",
                format_bytes(size),
            )
            return False
        self._close = finalize(self, self._shim.lowtide_arena_close, self._handle)
        self.bytes = size
        return True


def arena_for(device: torch.device) -> Arena | None:
    """For steps on `device`; None without a C++ compiler, and on CUDA, whose allocator keeps its blocks itself."""
    return Arena() if cuda.type_of(device) == "cpu" and compiler() is not None else None


def describe_arena(device: torch.device, arena: Arena | None, layout: Layout) -> str:
    """Where the tensors of a step lie, in a line, for reports."""
    if cuda.type_of(device) != "cpu":
        return "where the device's caching allocator puts them"
    if arena is None:
        return "where the allocator puts them: planned addresses need a C++ compiler, install g++"
    if not arena.bytes or layout.placement is None:
        return "where the allocator puts them, until a whole step has been seen"
    said = f"in one block of {format_bytes(arena.bytes)}, {layout.placement.waste:.2%} more than is in use at once"
    counts = arena.last
    if counts is not None:
        elsewhere = counts.unforeseen + counts.taken
        said += f"; last step: {counts.placed} as planned, {counts.kept} outlive it, {elsewhere} elsewhere"
    return said
