"""A schedule turned back into a step: runs inserted where it says, values dying where it says."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx
from torch._ops import OpOverload

from lowtide.graph.ops import RUN, Op, Storage, TensorMade
from lowtide.graph.program import results_of
from lowtide.graph.step_graph import StepGraph
from lowtide.graph.storing import Packing, Swapping
from lowtide.kernels.boundary import boundary
from lowtide.kernels.collectives import STARTS, finish_collective
from lowtide.kernels.effects import repeated_arguments
from lowtide.kernels.replay import generator_bytes, generator_state, replay_form
from lowtide.kernels.swap import SWAP_OPS, arrive, offload, prefetch, release
from lowtide.records.step_plan import Act, Action
from lowtide.records.vocabulary import Purpose, Role


def rewrite(graph: StepGraph, actions: Sequence[Action], order: Sequence[int]) -> StepGraph:
    """`graph` with its ops in `order`, which names `actions`; same nodes, same names, where they run once."""
    runs = [0] * len(graph.ops)
    for o in order:
        if actions[o].act is Act.RUN:
            runs[actions[o].ranks[0]] += 1
    writer = _Writer(graph, runs)
    packings = {packing.storage: packing for packing in graph.packings}
    swappings = {swapping.storage: swapping for swapping in graph.swappings}
    for o in order:
        action = actions[o]
        storage = -1 if action.storage is None else action.storage
        match action.act:
            case Act.RUN:
                writer.run(graph.ops[action.ranks[0]])
            case Act.START:
                writer.start(graph.ops[action.ranks[0]])
            case Act.WAIT:
                writer.wait(graph.ops[action.ranks[0]])
            case Act.BESIDE:
                continue
            case Act.UPDATE:
                writer.update([graph.ops[rank] for rank in action.ranks])
            case Act.PACK:
                writer.pack(packings[storage])
            case Act.UNPACK:
                writer.unpack(packings[storage])
            case Act.OFFLOAD:
                writer.offload(swappings[storage])
            case Act.RELEASE:
                writer.release(swappings[storage])
            case Act.PREFETCH:
                writer.prefetch(swappings[storage])
    return writer.finish()


@dataclass(frozen=True)
class _Parked:
    """A value off the device, and the instance that it was copied from."""

    node: fx.Node
    storage: int
    value: fx.Node
    source: int


@dataclass
class _Writer:
    """Writes the new graph op by op and knows which instance of each value is the newest."""

    graph: StepGraph
    runs: Sequence[int]
    """How often each op of the old graph runs in all."""
    new: fx.Graph = field(default_factory=fx.Graph)
    ops: list[Op] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    values: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """The newest instance of each value of the old graph."""
    newest: list[int] = field(default_factory=list)
    """For each old storage the new one that is its newest instance."""
    viewed: dict[fx.Node, int] = field(default_factory=dict)
    """For each view of the old graph the new storage that its newest instance looks at."""
    ran: dict[int, int] = field(default_factory=dict)
    """For each old op the rank of its first run."""
    states: dict[int, tuple[fx.Node, int]] = field(default_factory=dict)
    """The generator's state before the first run of a random op."""
    packed: dict[int, tuple[fx.Node, int]] = field(default_factory=dict)
    """For each old storage its newest packed form."""
    parked: dict[int, "_Parked"] = field(default_factory=dict)
    """For each old storage its newest value off the device."""
    coming: dict[int, tuple[Op, fx.Node]] = field(default_factory=dict)
    """For each new storage that nothing has waited for yet, what fills it."""
    started: dict[int, tuple[fx.Node, int]] = field(default_factory=dict)
    """For each collective of the old graph what stands for it while it is under way."""

    def __post_init__(self) -> None:
        self.newest = [-1] * len(self.graph.storages)
        for storage in self.graph.storages:
            if storage.resident:
                self.newest[storage.index] = self._storage(storage)
        self._maker = {node: op for op in self.graph.ops for node in (op.node, *op.items)}
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                made = self.new.placeholder(node.name)
                made._rename(node.name)
                made.meta = dict(node.meta)
                self.values[node] = made

    def run(self, op: Op) -> None:
        """One run of an op that is neither view nor update."""
        again = op.rank in self.ran
        self._wait(op.reads)
        if op.is_random and not again and self.runs[op.rank] > 1:
            self._note_state(op)
        args, kwargs = op.node.args, dict(op.node.kwargs)
        target: Any = op.node.target
        if again:
            assert isinstance(target, OpOverload)
            args, kwargs = repeated_arguments(target, args, kwargs)
        given, options = self._map((args, kwargs))
        if again and op.is_random:
            given = (self.states[op.rank][0], *given)
            target = replay_form(op.node.target, self.graph.device)
        made = [self._storage(self.graph.storages[s]) for s in op.makes]
        reads = dict.fromkeys(self.newest[s] for s in op.reads)
        if again and op.is_effect:
            left_out = {s for s in op.writes if s not in op.makes}
            reads = dict.fromkeys(self.newest[s] for s in op.reads if s not in left_out)
        if again and op.is_random:
            reads[self.states[op.rank][1]] = None
        for old, new in zip(op.makes, made, strict=True):
            self.newest[old] = new
        self._emit(op, target, given, options, tuple(reads), Purpose.RECOMPUTE if again else Purpose.PROGRAM)
        self.ran.setdefault(op.rank, len(self.ops) - 1)

    def start(self, op: Op) -> None:
        """A collective goes its way."""
        self._wait(op.reads)
        given, options = self._map((op.node.args, dict(op.node.kwargs)))
        name = f"under_way_{op.node.name}"
        size = sum(self.graph.storages[s].bytes for s in op.makes)
        storage = self._storage(Storage(0, name, size, Role.OTHER, False, None))
        node = self._node(STARTS[op.node.target], given, options, name)
        node.meta = {RUN: op.name}
        self.started[op.rank] = (node, storage)
        made = TensorMade(node.name, (size,), "uint8", storage, Role.OTHER)
        reads = tuple(dict.fromkeys(self.newest[s] for s in op.reads))
        self._add(op, node, (), (made,), reads, (storage,), Purpose.START)

    def wait(self, op: Op) -> None:
        """It is there."""
        node, storage = self.started.pop(op.rank)
        for s in op.makes:
            self.newest[s] = self._storage(self.graph.storages[s])
        purpose = Purpose.RECOMPUTE if op.rank in self.ran else Purpose.PROGRAM
        self._emit(op, finish_collective, (node,), {}, (storage,), purpose)
        self.ran.setdefault(op.rank, len(self.ops) - 1)

    def update(self, updates: Sequence[Op]) -> None:
        """Updates that stand together; what they read is made to hand first, so that nothing comes between them."""
        for op in updates:
            self._wait(op.reads)
        mapped = [self._map((op.node.args, dict(op.node.kwargs))) for op in updates]
        for op, (given, options) in zip(updates, mapped, strict=True):
            reads = tuple(dict.fromkeys(self.newest[s] for s in op.reads))
            self._emit(op, op.node.target, given, options, reads, Purpose.PROGRAM)
            self.ran.setdefault(op.rank, len(self.ops) - 1)

    def pack(self, packing: Packing) -> None:
        """Make the small form of a value."""
        self._wait((packing.storage,))
        target, options = packing.pack
        old = self._maker[packing.node]
        size = Storage(0, f"packed_{packing.node.name}", packing.bytes, Role.ACTIVATION, False, None)
        storage = self._storage(size)
        node = self._node(target, (self.values[packing.node],), options, f"packed_{packing.node.name}")
        self.packed[packing.storage] = (node, storage)
        dtype = "uint8" if packing.small is None else packing.kind
        count = packing.bytes if packing.small is None else packing.bytes // packing.small.itemsize
        made = TensorMade(node.name, (count,), dtype, storage, Role.ACTIVATION)
        self._add(old, node, (), (made,), (self.newest[packing.storage],), (storage,), Purpose.PACK)

    def unpack(self, packing: Packing) -> None:
        """Make the value from its small form."""
        target, shape, options = packing.unpack
        small, source = self.packed[packing.storage]
        storage = self._storage(self.graph.storages[packing.storage])
        old = self._maker[packing.node]
        node = self._node(target, (small, *shape), options, packing.node.name)
        self.values[packing.node] = node
        self.newest[packing.storage] = storage
        described = next(made for made in old.outputs if made.name == packing.node.name)
        made = replace(described, name=node.name, storage=storage)
        self._add(old, node, (), (made,), (source,), (storage,), Purpose.UNPACK)

    def offload(self, swapping: Swapping) -> None:
        """Start to copy a value out."""
        self._wait((swapping.storage,))
        value, source = self.values[swapping.node], self.newest[swapping.storage]
        name = f"parked_{swapping.node.name}"
        storage = self._storage(Storage(0, name, 0, Role.OTHER, False, None))
        node = self._node(offload, (value,), {}, name)
        self.parked[swapping.storage] = _Parked(node, storage, value, source)
        old = self._maker[swapping.node]
        described = next(made for made in old.outputs if made.name == swapping.node.name)
        made = replace(described, name=node.name, storage=storage, role=Role.OTHER)
        self._add(old, node, (), (made,), (source,), (storage,), Purpose.OFFLOAD)

    def release(self, swapping: Swapping) -> None:
        """Wait until a value is out; the instance that went out dies here if nothing else reads it."""
        parked = self.parked[swapping.storage]
        node = self._node(release, (parked.node, parked.value), {}, f"release_{swapping.node.name}")
        old = self._maker[swapping.node]
        self._add(old, node, (), (), (parked.storage, parked.source), (), Purpose.RELEASE)

    def prefetch(self, swapping: Swapping) -> None:
        """Start to copy a value back in; what reads it first waits for it."""
        parked = self.parked[swapping.storage]
        storage = self._storage(self.graph.storages[swapping.storage])
        node = self._node(prefetch, (parked.node,), {}, swapping.node.name)
        self.values[swapping.node] = node
        self.newest[swapping.storage] = storage
        old = self._maker[swapping.node]
        self.coming[storage] = (old, node)
        described = next(made for made in old.outputs if made.name == swapping.node.name)
        made = replace(described, name=node.name, storage=storage)
        self._add(old, node, (), (made,), (parked.storage,), (storage,), Purpose.PREFETCH)

    def _wait(self, storages: Sequence[int]) -> None:
        """Before something reads `storages` of the old graph: their newest instances must be there."""
        for s in dict.fromkeys(storages):
            if self.newest[s] in self.coming:
                old, value = self.coming.pop(self.newest[s])
                node = self._node(arrive, (value,), {}, f"arrive_{value.name}")
                self._add(old, node, (), (), (self.newest[s],), (), Purpose.ARRIVE)

    def finish(self) -> StepGraph:
        """The new step."""
        returned: Any = next((op.node.args[0] for op in self.ops if op.node.target is boundary), ())
        results = (*returned, *self._map((results_of(self.graph.graph)[len(returned) :],))[0])
        self.new.output(results)
        self.new.lint()
        ops = _with_overwriting(self.ops, self.storages, self.graph, results)
        return replace(self.graph, graph=self.new, ops=ops, storages=tuple(self.storages), siblings=None)

    def _storage(self, like: Storage) -> int:
        index = len(self.storages)
        self.storages.append(replace(like, index=index, maker=None if like.resident else len(self.ops)))
        return index

    def _map(self, arguments: Any) -> Any:
        """`arguments` with every node of the old graph replaced by its newest instance, views made anew on demand."""
        nodes: list[fx.Node] = []
        fx.node.map_arg(arguments, lambda node: nodes.append(node))
        for node in nodes:
            self._at_hand(node)
        return fx.node.map_arg(arguments, lambda node: self.values[node])

    def _at_hand(self, node: fx.Node) -> None:
        maker = self._maker.get(node)
        if maker is None or not maker.is_view:
            return
        storage = self.newest[maker.outputs[0].storage]
        if self.viewed.get(maker.node) == storage:
            return
        given, options = self._map((maker.node.args, dict(maker.node.kwargs)))
        again = maker.rank in self.ran
        reads = tuple(dict.fromkeys(self.newest[s] for s in maker.reads))
        purpose = Purpose.RECOMPUTE if again else Purpose.PROGRAM
        self._emit(maker, maker.node.target, given, options, reads, purpose)
        self.ran.setdefault(maker.rank, len(self.ops) - 1)
        self.viewed[maker.node] = storage

    def _node(self, target: Any, args: Any, kwargs: dict[str, Any], name: str) -> fx.Node:
        return self.new.create_node("call_function", target, tuple(args), kwargs, name=name)

    def _emit(
        self, op: Op, target: Any, args: Any, kwargs: dict[str, Any], reads: tuple[int, ...], purpose: Purpose
    ) -> None:
        """Add a run of `op` to the new graph; its outputs are the newest instances from here on."""
        node = self._node(target, args, kwargs, op.node.name)
        node.meta = op.node.meta | {RUN: op.name}
        self.values[op.node] = node
        items = []
        for item in op.items:
            taken = self._node(item.target, (node, item.args[1]), {}, item.name)
            taken.meta = dict(item.meta)
            self.values[item] = taken
            items.append(taken)
        names = {old.name: self.values[old].name for old in (op.node, *op.items)}
        outputs = tuple(
            replace(made, name=names.get(made.name, made.name), storage=self.newest[made.storage])
            for made in op.outputs
        )
        makes = tuple(self.newest[s] for s in op.makes)
        effects = () if purpose is Purpose.RECOMPUTE else tuple(s for s in op.writes if s not in op.makes)
        self._add(op, node, tuple(items), outputs, reads, makes, purpose, effects)

    def _add(
        self,
        op: Op,
        node: fx.Node,
        items: tuple[fx.Node, ...],
        outputs: tuple[TensorMade, ...],
        reads: tuple[int, ...],
        makes: tuple[int, ...],
        purpose: Purpose,
        effects: tuple[int, ...] = (),
    ) -> None:
        made_here = purpose not in (Purpose.PROGRAM, Purpose.RECOMPUTE)
        self.ops.append(
            replace(
                op,
                rank=len(self.ops),
                name=node.name,
                op=str(node.target) if isinstance(node.target, OpOverload) else _name_of(node, op),
                outputs=outputs,
                reads=reads,
                writes=(*makes, *(self.newest[s] for s in effects)),
                makes=makes,
                forward=None if op.forward is None else self.ran.get(op.forward),
                is_view=op.is_view and not made_here,
                is_random=op.is_random and purpose is Purpose.PROGRAM,
                is_effect=bool(effects),
                overwrites=op.overwrites if not made_here else None,
                purpose=purpose,
                node=node,
                items=items,
            )
        )

    def _note_state(self, op: Op) -> None:
        """Before the first run of a random op that will be replayed."""
        size = generator_bytes(self.graph.device)
        storage = self._storage(Storage(0, f"generator_before_{op.name}", size, Role.OTHER, False, None))
        node = self._node(generator_state, (self.graph.device,), {}, f"generator_before_{op.name}")
        self.states[op.rank] = (node, storage)
        made = TensorMade(node.name, (size,), "uint8", storage, Role.OTHER)
        self._add(op, node, (), (made,), (), (storage,), Purpose.STATE)


def _name_of(node: fx.Node, op: Op) -> str:
    """What an op calls, for people: of a swap its own name, of anything else in Python the old op's."""
    target: Any = node.target
    return f"lowtide.{target.__name__}" if target in SWAP_OPS or target in STARTS.values() else op.op


def _with_overwriting(ops: Sequence[Op], storages: Sequence[Storage], graph: StepGraph, results: Any) -> tuple[Op, ...]:
    """Ops that run in place in the old graph do so in the new one where their input is read for the last time."""
    last = {s: op.rank for op in ops for s in op.reads}
    wanted: set[str] = set()
    fx.node.map_arg(results, lambda node: wanted.add(node.name))
    kept = {made.storage for op in ops for made in op.outputs if made.name in wanted}
    if graph.ending.keep:
        kept |= {s for op in ops if op.is_update for s in op.reads}
    place = {made.name: made.storage for op in ops for made in op.outputs}
    decided = []
    for op in ops:
        if op.overwrites is not None:
            first = op.node.args[0]
            assert isinstance(first, fx.Node)
            storage = place[first.name]
            mine = last[storage] == op.rank and storage not in kept and not storages[storage].resident
            op = replace(op, overwrites=storage if mine else None)
        decided.append(op)
    return tuple(decided)
