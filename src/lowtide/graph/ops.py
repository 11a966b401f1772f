"""The parts of a StepGraph: ops, the tensors they make, and the storages behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from lowtide.records.vocabulary import Phase, Purpose, Role

RUN = "lowtide_run"
"""Key of a node's meta in a rewritten step: the op of the captured step that it runs."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes on the device; views of it cost nothing and keep it alive."""

    index: int
    name: str
    """Of the parameter, buffer or batch tensor, or of the op that makes it."""
    bytes: int
    role: Role
    resident: bool
    """There before and after the step."""
    maker: int | None
    """Rank of the op that makes it; None for residents."""


@dataclass(frozen=True, slots=True)
class TensorMade:
    """One tensor that an op makes: new bytes, or a view of bytes that were there."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: int
    role: Role

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Op:
    """One call of the graph. `reads` and `writes` are storages, views resolved."""

    rank: int
    name: str
    op: str
    """The aten name, e.g. `aten.addmm.default`."""
    phase: Phase
    module: str
    source: str
    """The user's `file:line`; of a backward op, the line of the forward op behind it."""
    outputs: tuple[TensorMade, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Storages that it makes or changes."""
    makes: tuple[int, ...]
    """Storages that do not exist before it."""
    forward: int | None
    """Of a backward op: rank of the forward op that it is the backward of."""
    is_view: bool
    """It touches no bytes: a second name for a storage."""
    is_random: bool
    is_effect: bool
    """It changes something that outlives the step: a buffer, a parameter, the optimizer's state."""
    overwrites: int | None
    """The storage whose bytes its result takes over: eager runs it in place, and nobody reads its input again."""
    repeats: bool
    """It can run again with the same result and without its effect, if what it reads is as it was."""
    purpose: Purpose
    node: fx.Node
    items: tuple[fx.Node, ...]
    """The `getitem` nodes that take its outputs apart."""

    @property
    def captured_name(self) -> str:
        """Its own name, or in a rewritten step that of the captured op which it runs."""
        return str(self.node.meta.get(RUN, self.name))

    @property
    def is_update(self) -> bool:
        """Does it move parameters? The only ops that are not aten calls."""
        return self.phase is Phase.OPTIMIZER

    @property
    def role(self) -> Role:
        """The role of the first tensor that it makes; a parameter's for an update."""
        return self.outputs[0].role if self.outputs else Role.OTHER


def run_ends(ops: Sequence[Op]) -> dict[int, int]:
    """For every update the rank of the last one of its run.

    Updates that stand together run as one `optimizer.step()`, as in eager, and their gradients die together.
    """
    ends: dict[int, int] = {}
    for op in reversed(ops):
        if op.is_update:
            ends[op.rank] = ends.get(op.rank + 1, op.rank)
    return ends
