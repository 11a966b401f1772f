"""Runs a captured step op by op on real tensors, and measures each op."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from lowtide.device.clock import Clock
from lowtide.device.meter import Meter, Taken
from lowtide.errors import ProfileError
from lowtide.graph.ops import Op
from lowtide.graph.program import deaths, late_results, prepare, store
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.dispatch import as_the_user, below_autograd, set_grad_mode
from lowtide.kernels.swap import Space
from lowtide.optimizer.update import Kept, Ledger, state_tensors, update
from lowtide.profiling.inner import InnerOps
from lowtide.records.profile import InnerOp
from lowtide.records.vocabulary import Purpose
from lowtide.watching.watcher import collector_waits

Tick = Callable[[Op], None]


@dataclass
class OpByOp:
    """One measured run: per op its time and what it took from the allocator."""

    times: list[float] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    peak: int = 0
    """The most bytes taken at once, of a run that trains."""


@dataclass
class Learned:
    """What only a real run can tell: true storage sizes, and the aten ops inside updates."""

    bytes: dict[int, int] = field(default_factory=dict)
    inner: dict[int, tuple[InnerOp, ...]] = field(default_factory=dict)


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection in the middle of what is measured, but once before it."""
    if gc.isenabled():  # not for each run of a measurement that has begun
        gc.collect()
    with collector_waits():
        yield


def run_op_by_op(
    graph: StepGraph,
    batch: Sequence[Tensor],
    clock: Clock,
    meter: Meter,
    tick: Tick,
    space: Space | None = None,
    *,
    learned: Learned | None = None,
    inside: bool = False,
) -> OpByOp:
    """One iteration, an op at a time; values die exactly where they die in the program. Swaps go to `space`.

    `learned` is told what real tensors say of storages, and what the trace says is held against that. With `inside` it
    also gets the aten ops of updates, and this run is not good for a measurement.
    """
    with no_collection():
        ledger = Ledger(graph.optimizer, _keep(graph), space=space)
        return _op_by_op(graph, batch, clock, meter, tick, ledger, learned, inside=inside)[0]


def train_op_by_op(
    graph: StepGraph, batch: Sequence[Tensor], clock: Clock, meter: Meter, ledger: Ledger, learned: Learned | None
) -> tuple[OpByOp, list[Any]]:
    """The same as a step of training, with what the program would give back."""
    with collector_waits():
        return _op_by_op(graph, batch, clock, meter, lambda _: None, ledger, learned, whole=True)


def _op_by_op(
    graph: StepGraph,
    batch: Sequence[Tensor],
    clock: Clock,
    meter: Meter,
    tick: Tick,
    ledger: Ledger,
    learned: Learned | None,
    *,
    inside: bool = False,
    whole: bool = False,
) -> tuple[OpByOp, list[Any]]:
    """`whole` also measures what is taken at once, which is another look at the meter for each op."""
    measured, held = OpByOp(), 0
    values = _inputs(graph, batch)
    check = None if learned is None else _StorageCheck(graph, batch, learned)
    output = next(node for node in graph.graph.nodes if node.op == "output")
    results: list[Any] = list(output.args[0])
    with below_autograd():
        if whole:
            meter.start()
        for op, dead in zip(graph.ops, deaths(graph.ops, late_results(graph.graph, graph.ops)), strict=True):
            set_grad_mode(graph.grad_mode(op))
            function, args, kwargs = prepare(op, values, ledger)
            if whole:
                held += meter.stop().net
            meter.start()
            clock.start()
            if inside and learned is not None and op.node.target is update:
                with as_the_user(), InnerOps(clock, meter) as inner:
                    made = function(*args, **kwargs)
                learned.inner[op.rank] = inner.records()
            else:
                made = function(*args, **kwargs)
            measured.times.append(clock.stop())
            taken = meter.stop()
            measured.taken.append(taken)
            if whole:
                measured.peak = max(measured.peak, held + taken.peak)
                held += taken.net
                meter.start()
            if check is not None and op.node.target is not update:
                check.made(op, made)
            del args, kwargs
            store(op, made, values)
            del made
            if results[0] in (op.node, *op.items):
                ledger.loss_is(values[results[0].name])
            for name in dead:
                del values[name]
            if check is not None:
                check.over(op)
            tick(op)
        if whole:
            meter.stop()
    return measured, [values[x.name] if isinstance(x, fx.Node) else x for x in results] if whole else []


def failing_op(frame: FrameType) -> Op | None:
    """The op at which a run op by op stands, if `frame` is of one."""
    return frame.f_locals.get("op") if frame.f_code is _op_by_op.__code__ else None


def as_captured(
    graph: StepGraph, through: StepGraph, learned: Learned, measured: Sequence[OpByOp]
) -> tuple[Learned, list[OpByOp]]:
    """What runs of the rewritten `through` say about the captured `graph`: the first run of every op counts."""
    first = {op.captured_name: op for op in reversed(through.ops) if op.purpose is Purpose.PROGRAM}
    chosen = [first[op.name] for op in graph.ops]
    known = Learned()
    for op, ran in zip(graph.ops, chosen, strict=True):
        known.bytes |= {s: learned.bytes[t] for s, t in zip(op.makes, ran.makes, strict=True) if t in learned.bytes}
        if ran.rank in learned.inner:
            known.inner[op.rank] = learned.inner[ran.rank]
    picked = [OpByOp([run.times[op.rank] for op in chosen], [run.taken[op.rank] for op in chosen]) for run in measured]
    return known, picked


def state_bytes(graph: StepGraph) -> dict[str, int]:
    """Bytes of the optimizer's state as it is after a step, by `parameter.key`: what a foreign optimizer makes is not
    known before."""
    names = [node.meta["lowtide_name"] for node in graph.graph.nodes if node.op == "placeholder"]
    return {
        f"{name}.{key}": tensor.untyped_storage().nbytes()
        for name, parameter in zip(names, graph.residents, strict=False)
        if graph.optimizer is not None
        for key, tensor in state_tensors(graph.optimizer, parameter).items()
        if tensor.device == graph.device
    }


class _Weighed:
    """The optimizer in a plain run: notes how many bytes each of its steps takes, a whole run of updates at a time.

    A for-loop holds the temporaries of one parameter until those of the next are there, so a step takes more than
    the largest of its updates would alone.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._base = 0
        self._peak = 0
        self.steps: list[int] = []

    def __call__(self, step: Callable[[], object]) -> None:
        """One `optimizer.step()`."""
        self._note()
        step()
        self.steps.append(self._note().peak)

    def _note(self) -> Taken:
        taken = self._meter.stop()
        self._peak = max(self._peak, self._base + taken.peak)
        self._base += taken.net
        self._meter.start()
        return taken

    def total(self) -> int:
        """The most bytes taken since the run began."""
        self._note()
        return self._peak


@dataclass(frozen=True, slots=True)
class PlainRun:
    """The truth that the op-by-op figures must add up to."""

    time: float
    peak: int
    """The most bytes taken at once, residents not counted."""
    steps: tuple[int, ...]
    """The most bytes that each `optimizer.step()` took."""


def run_plain(graph: StepGraph, batch: Sequence[Tensor], clock: Clock, meter: Meter) -> PlainRun:
    """One iteration of the program as it is."""
    with no_collection():
        return train_plain(graph, batch, clock, meter, Ledger(graph.optimizer, _keep(graph)))[0]


def train_plain(
    graph: StepGraph, batch: Sequence[Tensor], clock: Clock, meter: Meter, ledger: Ledger
) -> tuple[PlainRun, list[Any]]:
    """The same as a step of training, with what the program gives back."""
    inputs = [*graph.held, *batch]
    ledger.around = weighed = _Weighed(meter)
    with collector_waits(), below_autograd():
        meter.start()
        clock.start()
        outputs = graph.program.run(inputs, ledger)
        time = clock.stop()
        peak = weighed.total()
    return PlainRun(time, peak, tuple(weighed.steps)), outputs


def _keep(graph: StepGraph) -> Kept | None:
    """Takes the gradients where they stay."""
    return [] if graph.ending.keep else None


def _inputs(graph: StepGraph, batch: Sequence[Tensor]) -> dict[str, Any]:
    placeholders = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    return dict(zip(placeholders, [*graph.held, *batch], strict=True))


def _residents(graph: StepGraph, batch: Sequence[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Each input with the number of its storage: inputs come first in the graph's storages, one each but for ties."""
    seen: dict[int, int] = {}
    for tensor in (*graph.held, *batch):
        key = tensor.untyped_storage()._cdata
        yield tensor, seen.setdefault(key, len(seen))


class _StorageCheck:
    """What the trace says of storages, held against real tensors while a step runs."""

    def __init__(self, graph: StepGraph, batch: Sequence[Tensor], learned: Learned) -> None:
        self._learned = learned
        self._owner = {x.untyped_storage().data_ptr(): s for x, s in _residents(graph, batch)}
        self._pointers: dict[int, int] = {}
        """Where each storage lies that is alive at the moment."""
        self._ending: dict[int, list[int]] = {}
        for storage, life in graph.lifetimes.items():
            self._ending.setdefault(life.last, []).append(storage)

    def made(self, op: Op, made: Any) -> None:
        """Note how large the outputs of `op` really are (oneDNN's LSTM has one of unknown size), and where they lie."""
        tensors = [x for x in (made if isinstance(made, tuple | list) else [made]) if isinstance(x, Tensor)]
        picked = [made[item.args[1]] for item in op.items] if op.items else tensors
        values = (x for node in op.items or (op.node,) for x in tree_leaves(node.meta.get("val")))
        for tensor, value in zip(picked, (x for x in values if isinstance(x, Tensor)), strict=False):
            _check_strides(op, tensor, value)
        for tensor, expected in zip(picked, op.outputs, strict=True):
            storage = tensor.untyped_storage()
            pointer = storage.data_ptr()
            if pointer == 0:
                continue
            known = self._owner.setdefault(pointer, expected.storage)
            if known != expected.storage:
                raise ProfileError(
                    f"{op.op} ({op.module}, {op.source}) shares memory differently than its meta function says: "
                    "its storages cannot be planned; report this to torch"
                )
            if expected.storage in op.makes:
                self._learned.bytes[expected.storage] = storage.nbytes()
                self._pointers[expected.storage] = pointer

    def over(self, op: Op) -> None:
        """What lives no longer than `op` is gone."""
        for storage in self._ending.get(op.rank, ()):
            self._owner.pop(self._pointers.pop(storage, 0), None)


def _check_strides(op: Op, tensor: Tensor, traced: Tensor) -> None:
    """What came after it was traced for these strides: with others, the step is another one than eager's."""
    both = zip(tensor.shape, tensor.stride(), traced.stride(), strict=False)
    if tensor.shape == traced.shape and any(size > 1 and have != want for size, have, want in both):
        raise ProfileError(
            f"{op.op} ({op.module}, {op.source}) gives strides {tensor.stride()} where its meta function says "
            f"{traced.stride()}: give it a contiguous input, with .contiguous(), and report this to lowtide"
        )
