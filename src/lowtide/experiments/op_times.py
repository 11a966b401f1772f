"""What planned steps take longer than eager and captured ones of the same rounds, and where that time goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol


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


class Row(Protocol):
    """One planned step that took part in the rounds, or could not."""

    @property
    def ms(self) -> tuple[float, ...]:
        """Per round; empty where it did not run."""

    @property
    def ops(self) -> OpTimes | None:
        """None where it did not run."""


class Rounds:
    """A record of rounds: in each of them eager, captured and planned steps ran in turn."""

    eager_ms: tuple[float, ...]
    captured_ms: tuple[float, ...]
    captured_ops: OpTimes

    def against_eager(self, row: Row) -> list[float]:
        """Extra time of each round, as a share of its eager step; nothing where the plan was not run."""
        return _extra(row.ms, self.eager_ms)

    def against_captured(self, row: Row) -> list[float]:
        """Extra time of each round, as a share of its captured step; nothing where the plan was not run."""
        return _extra(row.ms, self.captured_ms)

    def accounting(self, row: Row, waits: Sequence[float] = ()) -> Accounting:
        """Where the extra time against the captured step goes; only of a row that ran."""
        if row.ops is None:
            raise ValueError("there is no plan, so nothing to account for")
        difference = median(mine - other for mine, other in zip(row.ms, self.captured_ms, strict=True))
        return Accounting.of(difference, row.ops, self.captured_ops, waits)


def _extra(mine: tuple[float, ...], other: tuple[float, ...]) -> list[float]:
    return [a / b - 1 for a, b in zip(mine, other, strict=True)] if mine else []
