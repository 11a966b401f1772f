"""A step as one of many devices runs it, as a planning problem: DDP, FSDP2, HSDP.

With FSDP2 shards stay, and the gathered parameters of a block are an ordinary value that can be made again, by
gathering again; whether they stay from forward to backward is for the planner to decide. The buffers are FSDP2's: a
flat one around each gather, the next block's gathered ahead, and the last reduction's input until the next one.

This is a simulation. Training on many devices must make the same ops; there the two meet in the names and sizes below.
"""

import re
from dataclasses import dataclass, field, replace

from lowtide.errors import InputError, shown
from lowtide.fitting.rank import Rank, alone, backward_of, states_of, updates_of
from lowtide.graph.step_graph import StepGraph
from lowtide.planning.problem import Op, Storage
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act, Action
from lowtide.records.vocabulary import Role

MASTER_B = 4
"""Bytes of a number in shards, their gradients and their optimizer state: float32, whatever is computed in."""
DRAG = 0.1
"""Share of a collective's time that it takes from the compute beside it: cores and bandwidth. An assumption."""
GATHERED, PIECE, COPY = ", gathered", ", gradient of the shard", ", gradients in one piece"
AHEAD, BUCKETS = "the next block, gathered ahead", "buckets of gradients"
"""Names, or their ends, of what many devices add."""
NODE = 8


@dataclass(frozen=True)
class Links:
    """Bytes a millisecond, one direction: between two devices of a node, and of one device to other nodes."""

    peer: float
    network: float = float("inf")

    def rate(self, world: int, sharing: int = 1) -> float:
        """Of a ring through all devices of a collective, of which each node has one in `sharing`: every device of a
        node has a card of its own, so that a ring's way out of a node is as wide as all cards of those in it."""
        if world <= NODE:
            return self.peer
        return min(self.peer, self.network * (NODE // sharing))


ROOT = "all else"
PARALLEL = ("fsdp", "hsdp", "ddp", "tp", "fsdp+tp")
MOST_DEVICES = 512


def check_world(world: int, parallel: str, tensor: int = 1) -> None:
    """Refuse what cannot be simulated. Layers are shared by `tensor` devices."""
    if parallel not in PARALLEL:
        raise InputError(f"unknown way to train on many devices {shown(parallel)}: write one of {', '.join(PARALLEL)}")
    if not 1 <= world <= MOST_DEVICES:
        raise InputError(f"a step can be spread over 1 to {MOST_DEVICES} devices, not {world}")
    if parallel == "hsdp" and world > 1 and (world % NODE or world == NODE):
        raise InputError(
            f"hsdp shards inside of nodes of {NODE} devices and replicates over nodes: {world} is no multiple of "
            f"{NODE} above it; take another --world, or fsdp"
        )
    if "tp" in parallel and not 2 <= tensor <= NODE:
        raise InputError(f"tensor parallel shares layers inside of a node, by 2 to {NODE} devices, not {tensor}")
    if world % tensor or (parallel == "fsdp+tp" and world == tensor):
        raise InputError(
            f"fsdp+tp shards over groups of {tensor} devices that share layers: {world} is no multiple of {tensor} "
            "above it; take another --world, or another --tp"
        )


def spread(step: StepProblem, graph: StepGraph, world: int, parallel: str, links: Links, tensor: int = 1) -> Rank:
    """`step`, which is `graph` with everything on one device, as one of `world` devices runs it.

    With tensor parallel it is one of `tensor` already.
    """
    check_world(world, parallel, tensor)
    if world == tensor:
        return alone(step, graph)
    if parallel == "fsdp+tp":
        return shard(step, graph, world // tensor, links, rate=links.rate(world, tensor))
    if parallel == "ddp":
        return _replicate(step, graph, world, links)
    if parallel == "fsdp":
        return shard(step, graph, world, links)
    return shard(step, graph, NODE, links, replicas=world // NODE)


def _replicate(step: StepProblem, graph: StepGraph, world: int, links: Links) -> Rank:
    """DDP: everything everywhere, and buckets as large as all gradients, which are reduced beside backward."""
    problem = step.problem
    size = sum(problem.storages[s].bytes for s in _gradients(graph, _groups(graph)))
    buckets = len(problem.storages)
    sending = 2 * size * (world - 1) / world / links.rate(world)
    beside = sum(problem.times[o] for o in backward_of(step, graph) - updates_of(step))
    waited = DRAG * sending + max(0.0, sending - beside)
    updates = updates_of(step)
    ops = tuple(replace(op, time=op.time + waited) if o == min(updates) else op for o, op in enumerate(problem.ops))
    storages = (*problem.storages, Storage(size, resident=True, name=BUCKETS))
    rank = alone(replace(step, problem=replace(problem, storages=storages, ops=ops)), graph)
    return replace(rank, parts={buckets: _bucket_sizes(size)})


def _bucket_sizes(size: int) -> tuple[int, ...]:
    """torch's default, 25 MiB each."""
    full, rest = divmod(size, 25 << 20)
    return (25 << 20,) * full + (rest,) * bool(rest)


def shard(
    step: StepProblem, graph: StepGraph, world: int, links: Links, *, replicas: int = 1, rate: float | None = None
) -> Rank:
    """FSDP2 over `world` devices; with `replicas`, gradients of shards are also reduced over so many groups (HSDP)."""
    if world < 2:
        raise InputError(f"sharding takes at least 2 devices, not {world}")
    return _Sharding(step, graph, world, rate or links.rate(world), links.network, replicas).rank()


@dataclass
class _Sharding:
    step: StepProblem
    graph: StepGraph
    world: int
    rate: float
    network: float
    replicas: int
    ops: list[Op] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    origin: list[int | None] = field(default_factory=list)
    last_copy: int | None = None
    since: dict[str, float] = field(default_factory=lambda: {"gather": 0.0, "reduce": 0.0})
    """Compute since the last gather, and since the last reduction: what the next one runs beside."""

    def __post_init__(self) -> None:
        graph = self.graph
        self.item = _item_bytes(graph)
        self.group_of = _groups(graph)
        self.gradient_of = _gradients(graph, self.group_of)
        self.storages = list(self.step.problem.storages)
        sizes: dict[str, list[int]] = {}
        for s, group in self.group_of.items():
            sizes.setdefault(group, []).append(self.storages[s].bytes)
        self.parts = {group: tuple(each) for group, each in sizes.items()}
        self.size_of = {group: sum(each) for group, each in sizes.items()}
        for s, storage in enumerate(graph.storages):
            if storage.resident and storage.role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
                self.storages[s] = replace(self.storages[s], bytes=self._share(self.storages[s].bytes))
        self.gathered = self._add(GATHERED, dict(self.size_of))
        self.pieces = self._add(PIECE, {group: self._share(size) for group, size in self.size_of.items()})
        self.copies = self._add(COPY, {group: size * MASTER_B // self.item for group, size in self.size_of.items()})
        self.ahead = len(self.storages)
        blocks = [size for group, size in self.size_of.items() if group != ROOT]
        self.storages.append(Storage(max(blocks, default=0), resident=True, name=AHEAD))

    def _add(self, ending: str, sizes: dict[str, int]) -> dict[str, int]:
        first = len(self.storages)
        self.storages += [Storage(size, name=group + ending) for group, size in sizes.items()]
        return {group: first + k for k, group in enumerate(sizes)}

    def _share(self, size: int) -> int:
        """Of a parameter or its state, what one device keeps, in float32."""
        return -(-size * MASTER_B // (self.item * self.world))

    def rank(self) -> Rank:
        left = {group: sum(g == group for g in self.gradient_of.values()) for group in self.size_of}
        seen: set[str] = set()
        for o, (op, action) in enumerate(zip(self.step.problem.ops, self.step.actions, strict=True)):
            if action.act is Act.UPDATE:
                self._put(self._update(op), action, o)
                continue
            for group in dict.fromkeys(self.group_of[s] for s in op.reads if s in self.group_of):
                if group not in seen:
                    seen.add(group)
                    self._gather(group, action)
            reads = (self.gathered[self.group_of[s]] if s in self.group_of else s for s in op.reads)
            self._put(replace(op, reads=tuple(dict.fromkeys(reads))), action, o)
            for group in [self.gradient_of[s] for s in op.writes if s in self.gradient_of and not op.optional]:
                left[group] -= 1
                if left[group] == 0:
                    self._reduce(group, action)
        place = {o: k for k, o in enumerate(self.origin) if o is not None}
        used = {s for op in self.ops for s in op.writes}
        storages = tuple(
            s if n in used or s.resident else replace(s, resident=True, bytes=0) for n, s in enumerate(self.storages)
        )
        problem = replace(self.step.problem, storages=storages, ops=tuple(self.ops))
        problem.verify()
        moved = replace(
            self.step,
            problem=problem,
            actions=tuple(self.actions),
            random=frozenset(place[o] for o in self.step.random),
        )
        return Rank(
            moved,
            backward_of(moved, self.graph),
            updates_of(moved),
            states_of(self.graph),
            gathers=frozenset(o for o, op in enumerate(self.ops) if op.name.startswith("gather ")),
            gathered=frozenset(self.gathered.values()),
            pieces=frozenset(self.pieces.values()),
            buffers=frozenset({self.ahead}),
            parts={self.gathered[group]: parts for group, parts in self.parts.items()},
        )

    def _put(self, op: Op, action: Action, source: int | None = None) -> None:
        self.ops.append(op)
        self.actions.append(action if source is not None else replace(action, act=Act.RUN, ranks=()))
        self.origin.append(source)
        if source is not None:
            self.since = {what: ms + op.time for what, ms in self.since.items()}

    def _sending(self, size: float) -> float:
        return size * (self.world - 1) / self.world / self.rate

    def _beside(self, what: str, ms: float) -> float:
        """What a collective of `ms` costs: some of the compute beside it, and all that it takes longer."""
        compute, self.since[what] = self.since[what], 0.0
        return DRAG * ms + max(0.0, ms - compute)

    def _gather(self, group: str, action: Action) -> None:
        """Into a flat buffer, and from there into the parameters."""
        size = self.size_of[group]
        buffers = size + -(-size // self.world)
        time = self._beside("gather", self._sending(size))
        op = Op(f"gather {group}", time, (), (self.gathered[group],), workspace=buffers)
        self._put(op, action)

    def _reduce(self, group: str, action: Action) -> None:
        """In float32, from one flat copy, which goes only when the next one is made."""
        if self.last_copy is not None:
            done = self.ops[-1]
            self.ops[-1] = replace(done, reads=(*done.reads, self.last_copy))
        mine = tuple(s for s, g in self.gradient_of.items() if g == group)
        self.last_copy = self.copies[group]
        size = self.size_of[group] * MASTER_B / self.item
        sending = self._sending(size)
        if self.replicas > 1:  # all-reduce of the shard over the network
            sending += 2 * size / self.world / min(self.rate, self.network)
        time = self._beside("reduce", sending)
        self._put(Op(f"reduce {group}", time, mine, (self.last_copy, self.pieces[group]), once=True), action)

    def _update(self, op: Op) -> Op:
        reads = dict.fromkeys(self.pieces[self.gradient_of[s]] if s in self.gradient_of else s for s in op.reads)
        return replace(op, reads=tuple(reads), time=op.time / self.world, workspace=op.workspace // self.world)


def block_of(name: str) -> str:
    """Parameters of one block are gathered together; a block is what has a number in its name."""
    found = re.match(r".*?\.\d+(?=\.)", name)
    return found.group() if found else ROOT


def _groups(graph: StepGraph) -> dict[int, str]:
    """By storage of a parameter: its block."""
    return {
        s: block_of(storage.name)
        for s, storage in enumerate(graph.storages)
        if storage.resident and storage.role is Role.PARAMETER
    }


def _gradients(graph: StepGraph, group_of: dict[int, str]) -> dict[int, str]:
    """By storage: the group of the parameter whose gradient it is."""
    return {
        s: group_of[parameter]
        for op in graph.ops
        if op.is_update
        for parameter in op.reads
        if parameter in group_of
        for s in op.reads
        if graph.storages[s].role is Role.GRADIENT
    }


def _item_bytes(graph: StepGraph) -> int:
    """Of the numbers that the step computes in."""
    sizes = {tensor.element_size() for tensor in graph.model.parameters()}
    if len(sizes) != 1:
        raise InputError("sharding is simulated for parameters of one dtype: convert the model to one")
    return sizes.pop()
