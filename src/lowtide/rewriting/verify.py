"""Proof that a rewritten step computes what the old one does.

The new ops are walked in order on paper: every name stands for a value of the old graph, every storage holds a content
that an op in place destroys, every resident has a version that effects raise. It shares no code with the rewriter.
"""

from collections.abc import Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload

from lowtide.errors import RewriteError
from lowtide.graph.ops import Op
from lowtide.graph.program import deaths, late_results, results_of
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels import collectives, swap
from lowtide.kernels.effects import repeated_arguments
from lowtide.kernels.replay import generator_state, replay_form
from lowtide.optimizer.update import update
from lowtide.records.vocabulary import Phase, Purpose

Value = tuple[str, ...]
"""What a name stands for: the old graph's node, its packed form, or the generator's state before a random op."""


def verify(old: StepGraph, new: StepGraph) -> None:
    """Raise a RewriteError that names the op where `new` is not `old` in another order."""
    _Walk(old, new).walk()


class _Walk:
    def __init__(self, old: StepGraph, new: StepGraph) -> None:
        self.old, self.new = old, new
        self.old_op = {op.name: op for op in old.ops}
        self.packing = {packing.node.name: packing for packing in old.packings}
        self.values: dict[str, Value] = {}
        self.place: dict[str, int] = {}
        """The storage that each name lies in."""
        self.overwritten: dict[int, str] = {}
        self.versions: dict[int, int] = {}
        self.expected = _versions_read(old)
        self.done: list[str] = []
        self.drawn: list[str] = []
        self.pending_state: str | None = None
        """A random op whose generator state was noted and which has not run yet."""
        self.swappable = {swapping.node.name for swapping in old.swappings}
        self.leaving: dict[str, str] = {}
        """Values that are being copied out, and what stands for them off the device."""
        self.coming: set[int] = set()
        """Storages that are being copied into."""
        self.under_way: dict[str, str] = {}
        """What stands for a collective that was started, and its op."""
        self.crossed = 0
        """How often the boundary between the halves has been passed."""

    def walk(self) -> None:
        """Follow the new ops from the first to the last."""
        inputs = [[node.name for node in g.graph.nodes if node.op == "placeholder"] for g in (self.old, self.new)]
        if inputs[0] != inputs[1]:
            raise RewriteError("the rewritten step has other inputs than the captured one")
        self.values = {name: (name,) for name in inputs[0]}
        late = late_results(self.new.graph, self.new.ops)
        for op, dead in zip(self.new.ops, deaths(self.new.ops, late), strict=True):
            self._step(op)
            for name in dead:
                self._drop(op, name)
        first: Any = () if self.old.boundary is None else self.old.boundary.node.args[0]  # checked at the boundary
        old, new = (results_of(g.graph)[len(first) :] for g in (self.old, self.new))
        if _shape(new, self._read_output) != _shape(old, lambda node: (node.name,)):
            raise RewriteError("the rewritten step returns something else than the captured one")
        once = [op.name for op in self.old.ops if op.is_effect]
        if sorted(self.done) != sorted(once):
            raise RewriteError(f"effects must happen once each: {sorted(set(once) ^ set(self.done))[:3]} did not")
        if self.leaving or self.coming:
            raise RewriteError(f"copies are under way at the end of the rewritten step: {sorted(self.leaving)[:3]}")
        if self.under_way:
            raise RewriteError(
                f"collectives are under way at the end of the rewritten step: {sorted(self.under_way)[:3]}"
            )
        if self.crossed != (self.old.boundary is not None):
            raise RewriteError("the rewritten step does not pass the boundary between its halves once")
        if self.drawn != [op.name for op in self.old.ops if op.is_random]:
            raise RewriteError("random numbers are drawn in another order than in the captured step")

    def _step(self, op: Op) -> None:
        match op.purpose:
            case Purpose.PACK:
                (source,) = self._read_all(op, op.node.args)
                packing = self._packing(op, source)
                if (op.node.target, dict(op.node.kwargs)) != packing.pack:
                    raise self._wrong(op, "does not pack as the value is packed")
                self._made(op, op.node, ("packed", *source))
            case Purpose.UNPACK:
                small, *rest = self._read_all(op, op.node.args)
                if small[0] != "packed":
                    raise self._wrong(op, "unpacks what was not packed")
                target, shape, options = self._packing(op, small[1:]).unpack
                if (op.node.target, tuple(rest), dict(op.node.kwargs)) != (target, shape, options):
                    raise self._wrong(op, "does not unpack as the value was packed")
                self._made(op, op.node, small[1:])
            case Purpose.STATE:
                if op.node.target is not generator_state or self.pending_state is not None:
                    raise self._wrong(op, "notes no generator state")
                self.pending_state = op.node.name.removeprefix("generator_before_")
                self._made(op, op.node, ("state", self.pending_state))
            case Purpose.OFFLOAD | Purpose.RELEASE | Purpose.PREFETCH | Purpose.ARRIVE:
                self._swap(op)
            case Purpose.START:
                self._start(op)
            case Purpose.PROGRAM | Purpose.RECOMPUTE:
                self._run(op)

    def _swap(self, op: Op) -> None:
        """A value on its way out or in: whole, unchanged until it is out, not read until it is in."""
        first, *others = op.node.all_input_nodes
        match op.node.target:
            case swap.offload:
                source = self._read(op, first)
                if source[0] not in self.swappable or len(source) > 1:
                    raise self._wrong(op, f"sends {source[0]} away, which cannot be swapped")
                self.leaving[first.name] = op.node.name
                self._made(op, op.node, ("parked", *source))
            case swap.release:
                value = self._read(op, others[0])
                if self._read(op, first) != ("parked", *value) or self.leaving.pop(others[0].name, None) != first.name:
                    raise self._wrong(op, "waits for another value than the one that it releases")
            case swap.prefetch:
                parked = self._read(op, first)
                if parked[0] != "parked":
                    raise self._wrong(op, "brings back what was not sent away")
                self._made(op, op.node, parked[1:])
                self.coming.add(self.place[op.node.name])
            case swap.arrive:
                if first.name not in self.values:
                    raise self._wrong(op, f"waits for {first.name}, which is not there")
                if self.place[first.name] not in self.coming:
                    raise self._wrong(op, "waits for a value that is not on its way")
                self.coming.remove(self.place[first.name])
            case _:
                raise self._wrong(op, f"calls {op.node.target} to swap a value")

    def _start(self, op: Op) -> None:
        """A collective of the old graph, which is waited for once."""
        original = self._original(op)
        if collectives.STARTS.get(original.node.target) is not op.node.target:
            raise self._wrong(op, f"calls {op.node.target} to start {original.node.target}")
        given = _shape((op.node.args, dict(op.node.kwargs)), lambda node: self._read(op, node))
        if given != _shape((original.node.args, dict(original.node.kwargs)), lambda node: (node.name,)):
            raise self._wrong(op, "reads other values than in the captured step")
        self._check_versions(op, original, again=False)
        self.under_way[op.node.name] = original.name
        self._made(op, op.node, ("started", original.name))

    def _wait(self, op: Op) -> None:
        """What a collective of the old graph makes, which was started and not waited for yet."""
        original = self._original(op)
        values = self._read_all(op, op.node.args)
        if values != [("started", original.name)] or op.node.kwargs:
            raise self._wrong(op, "waits for another collective than its own")
        if self.under_way.pop(op.node.all_input_nodes[0].name, None) is None:
            raise self._wrong(op, "waits for a collective that is over")
        if original.is_effect and op.purpose is Purpose.PROGRAM:
            self.done.append(original.name)
        self._made_all(op, original)

    def _drop(self, op: Op, name: str) -> None:
        """A name goes out of use behind `op`."""
        if name in self.under_way:
            raise self._wrong(op, f"drops {name}, which is under way")
        if name in self.leaving or name in self.leaving.values():
            raise self._wrong(op, f"drops {name} while it is being copied out")
        place = self.place.get(name)
        if place in self.coming and not any(self.place.get(other) == place for other in self.values if other != name):
            raise self._wrong(op, f"drops {name} while it is being copied in")
        del self.values[name]

    def _run(self, op: Op) -> None:
        """A run of an op of the old graph: the same call on the same values."""
        if op.node.target is collectives.finish_collective:
            self._wait(op)
            return
        again = op.purpose is Purpose.RECOMPUTE
        original = self._original(op)
        args, kwargs = original.node.args, dict(original.node.kwargs)
        given = op.node.args
        if again and isinstance(original.node.target, OpOverload):
            args, kwargs = repeated_arguments(original.node.target, args, kwargs)
        if again and original.is_random:
            state, *rest = given
            if self._read(op, state) != ("state", original.name):
                raise self._wrong(op, "does not replay the generator's state of its first run")
            if op.node.target is not replay_form(original.node.target, self.old.device):
                raise self._wrong(op, f"does not replay {original.node.target}")
            given = tuple(rest)
        elif op.node.target is not original.node.target:
            raise self._wrong(op, f"calls {op.node.target} instead of {original.node.target}")
        same = _shape((given, dict(op.node.kwargs)), lambda node: self._read(op, node)) == _shape(
            (args, kwargs), lambda node: (node.name,)
        )
        if not same:
            raise self._wrong(op, "reads other values than in the captured step")
        self._check_versions(op, original, again)
        self._check_side(op, original, again)
        if original.is_random and not again:
            if self.pending_state not in (None, original.name):
                raise self._wrong(op, "draws between a noted generator state and the op that it is for")
            self.pending_state = None
            self.drawn.append(original.name)
        if original.is_effect and not again:
            self.done.append(original.name)
            for s in original.writes:
                if self.old.storages[s].resident:
                    self.versions[s] = self.versions.get(s, 0) + 1
        self._made_all(op, original)
        if op.overwrites is not None:
            if any(self.place[name] == op.overwrites for name in self.leaving):
                raise self._wrong(op, "overwrites bytes that are being copied out")
            self.overwritten[op.overwrites] = op.name

    def _original(self, op: Op) -> Op:
        """The op of the old graph that `op` claims to run; whether it does is what the walk finds out."""
        if op.captured_name not in self.old_op:
            raise self._wrong(op, "is no op of the captured step")
        return self.old_op[op.captured_name]

    def _check_side(self, op: Op, original: Op, again: bool) -> None:
        """Forward runs before the boundary and backward behind it; what runs again may stand anywhere."""
        if original is self.old.boundary:
            self.crossed += 1
            return
        is_bound = self.old.boundary is not None and not again and not original.is_view
        if is_bound and (original.phase is Phase.FORWARD) != (self.crossed == 0):
            raise self._wrong(op, "stands on the other side of the boundary")

    def _check_versions(self, op: Op, original: Op, again: bool) -> None:
        left_out = {s for s in original.writes if s not in original.makes} if again else set()
        for s, version in self.expected[original.rank].items():
            if s not in left_out and self.versions.get(s, 0) != version:
                name = self.old.storages[s].name
                raise self._wrong(op, f"reads {name} after it has changed, or before")

    def _packing(self, op: Op, value: Value) -> Any:
        if value[0] not in self.packing:
            raise self._wrong(op, f"packs {value[0]}, which cannot be packed")
        return self.packing[value[0]]

    def _made_all(self, op: Op, original: Op) -> None:
        self._made(op, op.node, (original.node.name,))
        for item, old in zip(op.items, original.items, strict=True):
            if item.args[1] != old.args[1]:
                raise self._wrong(op, "takes its outputs apart differently")
            self._made(op, item, (old.name,))

    def _made(self, op: Op, node: fx.Node, value: Value) -> None:
        if op.items and node is op.node:
            return
        if node.target is update:
            return
        self.values[node.name] = value
        for made in op.outputs:
            if made.name == node.name:
                self.place[node.name] = made.storage

    def _read(self, op: Op, node: Any) -> Value:
        if node.name not in self.values:
            raise self._wrong(op, f"reads {node.name}, which is not there")
        place = self.place.get(node.name)
        if place is not None and place in self.overwritten:
            raise self._wrong(op, f"reads {node.name}, whose bytes {self.overwritten[place]} has overwritten")
        if place is not None and place in self.coming:
            raise self._wrong(op, f"reads {node.name}, which is still on its way back")
        return self.values[node.name]

    def _read_output(self, node: fx.Node) -> Value:
        return self._read(self.new.ops[-1], node)

    def _read_all(self, op: Op, args: Sequence[Any]) -> list[Any]:
        return [self._read(op, x) if isinstance(x, fx.Node) else x for x in args]

    def _wrong(self, op: Op, what: str) -> RewriteError:
        return RewriteError(
            f"op {op.rank} ({op.name}, {op.module or 'root'}, {op.source}) of the rewritten step {what}: "
            "a bug in lowtide, please report it"
        )


def _versions_read(old: StepGraph) -> list[dict[int, int]]:
    """For each old op the version of every resident that it reads: how many effects wrote it before."""
    versions: dict[int, int] = {}
    found = []
    for op in old.ops:
        found.append({s: versions.get(s, 0) for s in op.reads if old.storages[s].resident})
        if op.is_effect:
            for s in op.writes:
                if old.storages[s].resident:
                    versions[s] = versions.get(s, 0) + 1
    return found


def _shape(arguments: Any, value_of: Any) -> Any:
    """`arguments` with each node replaced by what it stands for; comparable with `==`."""
    if isinstance(arguments, fx.Node):
        return ("value", value_of(arguments))
    if isinstance(arguments, list | tuple):
        return [_shape(x, value_of) for x in arguments]
    if isinstance(arguments, dict):
        return {key: _shape(x, value_of) for key, x in arguments.items()}
    if isinstance(arguments, slice):
        return ("slice", _shape((arguments.start, arguments.stop, arguments.step), value_of))
    return (type(arguments).__name__, arguments)
