"""A step as one rank of FSDP2 runs it, as a planning problem: shards stay, whole parameters are gathered and let go.

The gathered parameters of a block are an ordinary value that can be made again, by gathering again; whether they stay
from forward to backward is for the planner to decide.
"""

import re
from dataclasses import dataclass, replace

from lowtide.errors import InputError
from lowtide.graph.step_graph import StepGraph
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act, Action
from lowtide.records.vocabulary import Phase, Role

MASTER_B = 4
"""Bytes of a number in shards, their gradients and their optimizer state: float32, whatever is computed in."""
EXPOSED = 0.1
"""Share of a collective's time that compute waits for; the rest runs beside it. An assumption."""
GATHERED, PIECE = ", gathered", ", gradient of the shard"
"""Ends of the names of what sharding adds."""
NODE = 8
NETWORK_BYTES_PER_MS = 40e6
"""Between nodes, for each device: 400 Gbit/s, four fifths of it reached. An assumption."""


@dataclass(frozen=True)
class Sharded:
    """The problem of one rank, and which of its ops belong to backward."""

    step: StepProblem
    backward: frozenset[int]
    gathered: frozenset[int]
    """Storages that hold whole parameters."""

    @property
    def problem(self) -> Problem:
        """Of one rank."""
        return self.step.problem


def shard(step: StepProblem, graph: StepGraph, world: int, bytes_per_ms: float) -> Sharded:
    """`step`, which is `graph` with all parameters on every device, over `world` ranks."""
    if world < 2:
        raise InputError(f"sharding takes at least 2 devices, not {world}")
    rate = bytes_per_ms if world <= NODE else min(bytes_per_ms, NETWORK_BYTES_PER_MS)
    problem = step.problem
    storages = list(problem.storages)
    group_of = {s: _group(graph.storages[s].name) for s in range(len(graph.storages)) if _is_parameter(graph, s)}
    whole: dict[str, int] = dict.fromkeys(group_of.values(), 0)
    for s, group in group_of.items():
        whole[group] += storages[s].bytes
    item = _item_bytes(graph)
    for s, storage in enumerate(graph.storages):
        if storage.resident and storage.role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
            storages[s] = replace(storages[s], bytes=-(-storages[s].bytes * MASTER_B // (item * world)))
    gathered = {group: len(storages) + k for k, group in enumerate(whole)}
    storages += [Storage(size, name=group + GATHERED) for group, size in whole.items()]
    pieces = {group: len(storages) + k for k, group in enumerate(whole)}
    storages += [Storage(-(-size * MASTER_B // (item * world)), name=group + PIECE) for group, size in whole.items()]
    gradient_of = _gradients(graph, group_of)
    left = {group: sum(g == group for g in gradient_of.values()) for group in whole}

    ops: list[Op] = []
    actions: list[Action] = []
    origin: list[int | None] = []
    seen: set[str] = set()

    def put(op: Op, action: Action, source: int | None) -> None:
        ops.append(op)
        actions.append(action)
        origin.append(source)

    for o, (op, action) in enumerate(zip(problem.ops, step.actions, strict=True)):
        groups = list(dict.fromkeys(group_of[s] for s in op.reads if s in group_of))
        update = action.act is Act.UPDATE
        for group in groups if not update else ():
            if group not in seen:
                seen.add(group)
                time = EXPOSED * whole[group] * (world - 1) / world / rate
                put(Op(f"gather {group}", time, (), (gathered[group],)), replace(action, ranks=()), None)
        reads = tuple(dict.fromkeys(gathered[group_of[s]] if s in group_of and not update else s for s in op.reads))
        if update:
            reads = tuple(dict.fromkeys(pieces[gradient_of[s]] if s in gradient_of else s for s in op.reads))
            op = replace(op, time=op.time / world, workspace=op.workspace // world)
        put(replace(op, reads=reads), action, o)
        done = [gradient_of[s] for s in op.writes if s in gradient_of and not op.optional]
        for group in done:
            left[group] -= 1
            if left[group] == 0:
                size = whole[group]
                mine = tuple(s for s, g in gradient_of.items() if g == group)
                time = EXPOSED * size * MASTER_B / item * (world - 1) / world / rate
                reduced = Op(
                    f"reduce {group}", time, mine, (pieces[group],), workspace=size * MASTER_B // item, once=True
                )
                put(reduced, replace(action, ranks=()), None)
    place = {o: k for k, o in enumerate(origin) if o is not None}
    problem = replace(problem, storages=tuple(storages), ops=tuple(ops))
    problem.verify()
    moved = replace(step, problem=problem, actions=tuple(actions), random=frozenset(place[o] for o in step.random))
    backward = frozenset(
        k for k, action in enumerate(actions) if action.ranks and graph.ops[action.ranks[0]].phase is not Phase.FORWARD
    )
    return Sharded(moved, backward, frozenset(gathered.values()))


def recomputing(sharded: Sharded, dropped: frozenset[int]) -> tuple[int, ...]:
    """The program, with what is in `dropped` let go after forward and made again where backward reads it."""
    problem = sharded.problem
    order: list[int] = []
    alive: set[int] = set()
    fell = False

    def need(s: int) -> None:
        if s in alive or problem.storages[s].resident:
            return
        maker = problem.producers[s][0]
        for other in problem.reads[maker]:
            need(other)
        order.append(maker)
        alive.update(problem.writes[maker])

    for o in problem.program:
        if o in sharded.backward and not fell:
            fell = True
            alive -= dropped
        for s in problem.reads[o]:
            need(s)
        order.append(o)
        alive.update(problem.writes[o])
    return tuple(order)


def _group(name: str) -> str:
    """Parameters of one block are gathered together; a block is what has a number in its name."""
    found = re.match(r".*?\.\d+(?=\.)", name)
    return found.group() if found else "all else"


def _is_parameter(graph: StepGraph, s: int) -> bool:
    return graph.storages[s].resident and graph.storages[s].role is Role.PARAMETER


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


def selective(sharded: Sharded, graph: StepGraph) -> frozenset[int]:
    """What torchtitan's selective checkpointing lets go: in every block all but attention, every second matrix product
    and what goes into the block; and gathered parameters."""
    kept: set[int] = set()
    blocks: dict[int, str] = {}
    counts: dict[str, int] = {}
    for o in sharded.problem.program:
        action = sharded.step.actions[o]
        if o in sharded.backward or not action.ranks:
            continue
        op = graph.ops[action.ranks[0]]
        block = _group(f"{op.module}.x")
        for s in sharded.problem.writes[o]:
            blocks[s] = block
        if block == "all else":
            kept.update(sharded.problem.writes[o])
            continue
        inputs = (s for s in sharded.problem.reads[o] if s in blocks and blocks[s] != block)
        kept.update(inputs)
        if "scaled_dot_product" in op.op:
            kept.update(sharded.problem.writes[o])
        if op.op.startswith("aten.mm"):
            counts[block] = counts.get(block, 0) + 1
            if counts[block] % 2:
                kept.update(sharded.problem.writes[o])
    return frozenset(set(blocks) - kept) | sharded.gathered
