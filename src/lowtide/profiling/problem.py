"""A measured step as a planning problem: ops, storages, times, bytes, and what each of them stands for in the graph.

Parameters are updated as soon as their gradient is complete, in the program that is planned; docs/rewriting.md says
why that is exact, and why no op of backward may run twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.replay import generator_bytes
from lowtide.optimizer.update import is_foreach
from lowtide.planning.problem import Op as ProblemOp
from lowtide.planning.problem import Problem, Storage
from lowtide.records.profile import OpRecord, Profile
from lowtide.records.step_plan import EVERYTHING, Act, Action, Allowed
from lowtide.records.transfer import copy_ms
from lowtide.records.vocabulary import Phase

TOGETHER = 0.002
"""Share of the bytes above the residents up to which complete gradients wait for each other, to be used in one
`optimizer.step()`."""


@dataclass(frozen=True)
class StepProblem:
    """A step as a problem. The first storages of the problem are the graph's, by number."""

    problem: Problem
    actions: tuple[Action, ...]
    """Per op of the problem, what it stands for."""
    random: frozenset[int]
    """Ops of the problem that draw random numbers: to run again they need the generator's state of their first run."""
    aside: int
    """The storage for what the graph does not show: state of the optimizer, generator states, bytes to undo a step."""
    states_B: int
    """Of it, bytes for generator states, as if every random op ran again."""
    state_B: int
    """Bytes of one such state."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How values can leave the device: the lanes of either direction, one or two, and which values are worth it."""

    out: str
    back: str
    least_bytes: int
    """A smaller value is not worth a copy."""
    undo_bytes: int = 0
    """Set aside for undoing a step whose copies fail."""


def problem_of(
    graph: StepGraph, profile: Profile, *, lanes: Lanes | None = None, allowed: Allowed = EVERYTHING
) -> StepProblem:
    """The problem of running `graph`, whose ops were measured in `profile` (perhaps with another ending).

    With `lanes`, activations can be swapped in the times that the profile has for it.
    """
    sizes = _sizes(graph, profile)
    records = {record.name: record for record in profile.ops}
    once = _ops_that_run_once(graph) if allowed.recompute else [True] * len(graph.ops)
    storages = [
        Storage(size, resident=s.resident, keep=s.index in graph.kept and not s.resident, name=s.name)
        for s, size in zip(graph.storages, sizes, strict=True)
    ]
    known = {storage.name for storage in graph.storages}
    unforeseen = sum(s.bytes for s in profile.storages if s.resident and s.name not in known)
    replayed = sum(op.is_random and not once[op.rank] for op in graph.ops)
    state = generator_bytes(graph.device)
    states = state * (replayed + 1) if replayed else 0  # and the one that a replay goes back to
    undo = 0 if lanes is None else lanes.undo_bytes
    aside = len(storages)
    storages.append(Storage(unforeseen + states + undo, resident=True, name="state that the graph does not show"))
    ops: list[ProblemOp] = []
    actions: list[Action] = []
    waiting = _Views(records)
    together = _update_places(graph, once, sizes, profile) if allowed.early_updates else _updates_at_the_end(graph)
    for op in graph.ops:
        if op.is_view:
            waiting.add(op)
        elif not op.is_update:
            record = records[op.name]
            ops.append(
                ProblemOp(
                    name=op.name,
                    time=record.runtime_ms + waiting.take(),
                    reads=op.reads,
                    writes=op.makes,
                    workspace=record.workspace_B,
                    once=once[op.rank],
                    reuses=op.overwrites,
                )
            )
            actions.append(Action(Act.RUN, (op.rank,), None, op.module, op.source))
        for updates in together.get(op.rank, ()):
            ops.append(_update(graph, updates, records))
            first = graph.ops[updates[0]]
            actions.append(Action(Act.UPDATE, updates, None, first.module, first.source))
    key = {s: (record.name, k) for record in profile.ops for k, s in enumerate(record.makes)}
    measured = {key[pack.storage]: pack for pack in profile.packs}
    for packing in graph.packings if allowed.pack else ():
        maker = graph.ops[graph.storages[packing.storage].maker or 0]
        pack = measured[maker.name, maker.makes.index(packing.storage)]
        packed = len(storages)
        storages.append(Storage(pack.bytes, name=f"{packing.node.name} as {pack.kind}"))
        for act, time, workspace, source, made in (
            (Act.PACK, pack.pack_ms, pack.pack_workspace_B, packing.storage, packed),
            (Act.UNPACK, pack.unpack_ms, pack.unpack_workspace_B, packed, packing.storage),
        ):
            name = f"{act}_{packing.node.name}"
            ops.append(ProblemOp(name, time, (source,), (made,), workspace=workspace, optional=True))
            actions.append(Action(act, (), packing.storage, maker.module, maker.source))
    if lanes is not None:
        _add_swaps(graph, profile, lanes, storages, ops, actions)
    problem = Problem(profile.model, tuple(storages), tuple(ops))
    problem.verify()
    random = (o for o, a in enumerate(actions) if a.act is Act.RUN and graph.ops[a.ranks[0]].is_random)
    return StepProblem(problem, tuple(actions), frozenset(random), aside, states, state)


def _add_swaps(
    graph: StepGraph,
    profile: Profile,
    lanes: Lanes,
    storages: list[Storage],
    ops: list[ProblemOp],
    actions: list[Action],
) -> None:
    """The ops that take activations off the device and bring them back; `release` has what copies take from compute."""
    slowdown = profile.transfer_drag / 2**20
    for swapping in graph.swappings:
        s, name = swapping.storage, swapping.node.name
        if storages[s].bytes < lanes.least_bytes or storages[s].keep:
            continue
        away = len(storages)
        storages.append(Storage(storages[s].bytes, name=f"{name} off the device", off_device=True))
        out, back = copy_ms(profile.transfer, storages[s].bytes)
        ops += [
            ProblemOp(f"offload_{name}", out, (s,), (away,), optional=True, lane=lanes.out),
            ProblemOp(f"release_{name}", slowdown * storages[s].bytes, (s, away), (), optional=True),
            ProblemOp(f"prefetch_{name}", back, (away,), (s,), optional=True, lane=lanes.back),
        ]
        maker = graph.ops[graph.storages[s].maker or 0]
        actions += [Action(act, (), s, maker.module, maker.source) for act in (Act.OFFLOAD, Act.RELEASE, Act.PREFETCH)]


def with_states(step: StepProblem, order: Sequence[int]) -> tuple[Problem, tuple[int, ...]]:
    """The problem and the order with the generator states that the order needs, and no others.

    The first run of a random op that runs again also writes its state, and the runs after it read that and hold
    another one, to go back to.
    """
    problem = step.problem
    counts: dict[int, int] = {}
    for o in order:
        counts[o] = counts.get(o, 0) + 1
    storages, ops, stand_in = list(problem.storages), list(problem.ops), {}
    storages[step.aside] = replace(storages[step.aside], bytes=storages[step.aside].bytes - step.states_B)
    for o, count in counts.items():
        if count > 1 and o in step.random:
            state = len(storages)
            storages.append(Storage(step.state_B, name=f"generator before {ops[o].name}"))
            first = ops[o]
            ops[o] = replace(first, writes=(*first.writes, state), once=True)
            stand_in[o] = len(ops)
            ops.append(
                replace(
                    first,
                    name=f"replay_{first.name}",
                    reads=(*first.reads, state),
                    workspace=first.workspace + step.state_B,
                    optional=True,
                )
            )
    seen: set[int] = set()
    exact = []
    for o in order:
        exact.append(stand_in[o] if o in seen and o in stand_in else o)
        seen.add(o)
    return replace(problem, storages=tuple(storages), ops=tuple(ops)), tuple(exact)


def without_idle_runs(problem: Problem, order: Sequence[int]) -> tuple[int, ...]:
    """`order` without the runs whose results nobody reads, which could stand where they may no longer run.

    A release has no result; it stays where its copy is read again.
    """
    seen: set[int] = set()
    first = []
    for o in order:
        first.append(o not in seen and not problem.ops[o].optional)
        seen.add(o)
    wanted = set(problem.kept)
    kept = []
    for place in range(len(order) - 1, -1, -1):
        o = order[place]
        wait = not problem.writes[o] and any(s in wanted and problem.storages[s].off_device for s in problem.reads[o])
        if first[place] or wait or not wanted.isdisjoint(problem.writes[o]):
            kept.append(o)
            wanted.difference_update(problem.writes[o])
            wanted.update(problem.reads[o])
    return tuple(reversed(kept))


class _Views:
    """Views cost next to nothing and are not planned; their time goes to the op behind them."""

    def __init__(self, records: dict[str, OpRecord]) -> None:
        self._records = records
        self._time = 0.0

    def add(self, op: Op) -> None:
        self._time += self._records[op.name].runtime_ms

    def take(self) -> float:
        time, self._time = self._time, 0.0
        return time


def _sizes(graph: StepGraph, profile: Profile) -> list[int]:
    """Measured bytes of the graph's storages: residents by name, others by the op that makes them."""
    resident = {s.name: s.bytes for s in profile.storages if s.resident}
    made = {record.name: [profile.storages[s].bytes for s in record.makes] for record in profile.ops}
    sizes = [resident.get(storage.name, storage.bytes) for storage in graph.storages]
    for op in graph.ops:
        for storage, size in zip(op.makes, made.get(op.name, ()), strict=False):
            sizes[storage] = size
    return sizes


def _ops_that_run_once(graph: StepGraph) -> list[bool]:
    """Which ops may not run again: those of backward, those with an effect that cannot be left out, those that read
    what the step itself changes, and those whose result must be there at the end."""
    changed = {s for op in graph.ops if op.is_effect and not op.is_update for s in op.writes if s not in op.makes}
    return [
        op.phase is not Phase.FORWARD
        or not op.repeats
        or (not op.is_effect and not changed.isdisjoint(op.reads))
        or not graph.kept.isdisjoint(op.makes)
        for op in graph.ops
    ]


def _update_places(
    graph: StepGraph, once: Sequence[bool], sizes: Sequence[int], profile: Profile
) -> dict[int, list[tuple[int, ...]]]:
    """For ranks of the graph the updates to run right behind them, each tuple in one `optimizer.step()`.

    An update stands behind everything that may still read the old parameter: the ops of the program, and every run of
    an op that a plan could put between the program's reads of what is made from it.
    """
    last_read = dict.fromkeys(range(len(graph.storages)), -1)
    for op in graph.ops:
        if not op.is_update:
            for s in (*op.reads, *op.makes):
                last_read[s] = op.rank
    needed_until: dict[int, int] = {}
    latest = dict(last_read)
    for op in reversed(graph.ops):
        if op.is_view or once[op.rank]:
            continue
        needed_until[op.rank] = max((latest[s] for s in op.makes), default=op.rank)
        for s in op.reads:
            latest[s] = max(latest[s], needed_until[op.rank])
    ready = sorted((max(latest[s] for s in op.reads), op.rank) for op in graph.ops if op.is_update)
    enough = TOGETHER * (profile.peak_B - profile.resident_B)
    places: dict[int, list[tuple[int, ...]]] = {}
    pending: list[int] = []
    waiting = 0
    for place, rank in ready:
        pending.append(rank)
        waiting += sum(sizes[s] for s in graph.ops[rank].reads if not graph.storages[s].resident)
        if waiting > enough:
            places.setdefault(place, []).append(tuple(pending))
            pending, waiting = [], 0
    if pending:
        places.setdefault(ready[-1][0], []).append(tuple(pending))
    return {place: [tuple(rank for updates in each for rank in updates)] for place, each in places.items()}


def _updates_at_the_end(graph: StepGraph) -> dict[int, list[tuple[int, ...]]]:
    updates = tuple(op.rank for op in graph.ops if op.is_update)
    return {updates[-1]: [updates]} if updates else {}


def _update(graph: StepGraph, ranks: Sequence[int], records: dict[str, OpRecord]) -> ProblemOp:
    """Updates that run as one step: a foreach optimizer holds the temporaries of all of them at once, a for-loop
    those of one parameter until the next one's are there."""
    measured = [records[graph.ops[rank].name] for rank in ranks if graph.ops[rank].name in records]
    largest = sorted((record.alone_B for record in measured), reverse=True)
    together = len(largest) if is_foreach(graph.optimizer) else 2
    gradients = {s for rank in ranks for s in graph.ops[rank].reads if not graph.storages[s].resident}
    name = graph.ops[ranks[0]].name if len(ranks) == 1 else f"{graph.ops[ranks[0]].name}_and_{len(ranks) - 1}_more"
    return ProblemOp(
        name=name,
        time=sum(record.runtime_ms for record in measured),
        reads=tuple(sorted(gradients)),
        writes=(),
        workspace=sum(largest[:together]),
        once=True,
    )
