"""Milliseconds of a step's ops by what they are there for, and where the extra time of a planned step goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class OpTimes:
    """Milliseconds of the ops of one step, run op by op, by what they are there for."""

    program: float
    """Forward and backward."""
    update: float
    """The optimizer."""
    recompute: float
    pack: float
    unpack: float
    state: float
    """Noting the random generator's state."""
    swap: float
    """Starting copies off the device and back; not the waiting for them."""


@dataclass(frozen=True, slots=True)
class Accounting:
    """Where the extra time goes, in milliseconds; the parts add up to `difference`."""

    difference: float
    """Median over the rounds of the planned step minus the other: the captured one, or in sweeps the eager one."""
    recompute: float
    pack: float
    unpack: float
    state: float
    swap: float
    """Starting copies."""
    swap_wait: float
    """Standing still for copies: median over the rounds."""
    program: float
    """Forward and backward in another order, warmer or colder caches."""
    update: float
    """The optimizer, one parameter at a time in both."""
    other: float
    """Anything else, noise included; also what `optimizer.step()` in parts costs more than one for all, and against
    eager steps what capturing changes."""

    @classmethod
    def of(cls, difference: float, ops: OpTimes, base: OpTimes, waits: Sequence[float] = ()) -> "Accounting":
        """`difference` divided up: `ops` are of the planned step, `base` of the captured one, `waits` of the rounds."""
        program, update = ops.program - base.program, ops.update - base.update
        waited = median(waits) if waits else 0.0
        known = ops.recompute + ops.pack + ops.unpack + ops.state + ops.swap + waited + program + update
        return cls(
            difference=difference,
            recompute=ops.recompute,
            pack=ops.pack,
            unpack=ops.unpack,
            state=ops.state,
            swap=ops.swap,
            swap_wait=waited,
            program=program,
            update=update,
            other=difference - known,
        )
