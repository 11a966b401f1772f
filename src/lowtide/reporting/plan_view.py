"""A plan as StepViews: the planned step, and the same step as captured, by the simulator's rules."""

from collections.abc import Sequence
from itertools import accumulate

from lowtide.planning.lanes import clock
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import instances
from lowtide.records.profile import OpRecord, Profile
from lowtide.records.step_plan import Action, StepPlan
from lowtide.records.vocabulary import Phase, Role
from lowtide.reporting.step_memory import as_captured
from lowtide.reporting.step_view import PROGRAM, UPDATE, Layer, Run, StepView
from lowtide.reporting.style import ROLE_COLOURS, ROLE_WORDS, WORKSPACE_COLOUR

RECOMPUTE, SWAP, COLLECTIVE = "recompute", "swap", "collective"
_HOW = "predicted by the simulator from measured op times and bytes"
_ALWAYS, _AGAIN, _PACKED, _WORKSPACE = "always there", "activations, made again", "activations, packed", "workspace"
_COLOURS = {
    _ALWAYS: "#A6A6A6",
    **{ROLE_WORDS[role]: ROLE_COLOURS[role] for role in (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.GRADIENT)},
    ROLE_WORDS[Role.ACTIVATION]: ROLE_COLOURS[Role.ACTIVATION],
    _AGAIN: "#D55E00",
    _PACKED: "#0072B2",
    ROLE_WORDS[Role.OTHER]: ROLE_COLOURS[Role.OTHER],
    _WORKSPACE: WORKSPACE_COLOUR,
}
"""From the bottom to the top."""


def planned_view(plan: StepPlan, profile: Profile | None) -> StepView:
    """The order that runs; `profile` adds what a plan does not know: phases, aten names, the parts of the residents."""
    seen: set[int] = set()
    names, kinds = [], []
    for o in plan.order:
        names.append(plan.problem.ops[o].name)
        kinds.append(_kind(plan, o, again=o in seen))
        seen.add(o)
    return _view("planned", plan, profile, plan.exact, plan.exact_order, names, kinds)


def unplanned_view(plan: StepPlan, profile: Profile | None) -> StepView:
    """The same step as captured: nothing runs twice, parameters move at the end."""
    problem = as_captured(plan)
    names = [problem.ops[o].name for o in problem.program]
    acts = {op.name: action.act for op, action in zip(plan.problem.ops, plan.actions, strict=True)}
    words = {"update": UPDATE, "start": COLLECTIVE, "beside": COLLECTIVE}
    kinds = [words.get(acts[name], PROGRAM) for name in names]
    return _view("as captured", plan, profile, problem, problem.program, names, kinds)


def _kind(plan: StepPlan, o: int, *, again: bool) -> str:
    """What a run of op `o` is there for."""
    act = plan.actions[o].act
    if act in ("run", "wait"):
        return RECOMPUTE if again else PROGRAM
    if act in ("start", "beside"):
        return COLLECTIVE
    return SWAP if act in ("offload", "release", "prefetch") else act


def _view(
    title: str,
    plan: StepPlan,
    profile: Profile | None,
    problem: Problem,
    order: Sequence[int],
    names: Sequence[str],
    kinds: Sequence[str],
) -> StepView:
    """`order` of `problem`; `names` are those of the plan's own ops."""
    actions = {op.name: action for op, action in zip(plan.problem.ops, plan.actions, strict=True)}
    records = {} if profile is None else {record.name: record for record in profile.ops}
    runs = tuple(
        _run(name, kind, actions[name], records.get(name), problem.ops[o].lane, start, problem.times[o])
        for name, kind, o, start in zip(names, kinds, order, clock(problem, order).starts, strict=True)
    )
    return StepView(title, _HOW, runs, _layers(plan, profile, problem, order, kinds))


def _run(name: str, kind: str, action: Action, record: OpRecord | None, lane: str, start: float, ms: float) -> Run:
    op, phase = ("", "") if record is None else (record.op, record.phase.value)
    phase = Phase.OPTIMIZER.value if kind == UPDATE else phase
    return Run(name, op, action.module, action.source, phase, kind, lane, start, ms)


def _layers(
    plan: StepPlan, profile: Profile | None, problem: Problem, order: Sequence[int], kinds: Sequence[str]
) -> tuple[Layer, ...]:
    """Every instance's bytes go to the layer of what it is; with the workspaces they add up to the simulator's."""
    words = _words(plan, profile, problem)
    change = {word: [0] * (len(order) + 2) for word in _COLOURS}
    for s, storage in enumerate(problem.storages):
        if storage.resident:
            change[words[s]][0] += problem.sizes[s]
    lived = instances(problem, order)
    made_again = (RECOMPUTE, "unpack", SWAP)
    for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True):
        again = words[s] == ROLE_WORDS[Role.ACTIVATION] and kinds[born] in made_again
        row = change[_AGAIN if again else words[s]]
        row[born] += problem.sizes[s]
        row[last + 1] -= problem.sizes[s]
    rows = {word: tuple(accumulate(row[: len(order)])) for word, row in change.items()}
    rows[_WORKSPACE] = tuple(problem.workspaces[o] for o in order)
    return tuple(Layer(word, _COLOURS[word], row) for word, row in rows.items() if any(row))


def _words(plan: StepPlan, profile: Profile | None, problem: Problem) -> list[str]:
    """Per storage of `problem` the layer that it counts to."""
    known = {} if profile is None else counterparts(plan, profile)
    packs, updates = (
        [op for op, action in zip(plan.problem.ops, plan.actions, strict=True) if action.act == act]
        for act in ("pack", "update")
    )
    packed = {s for op in packs for s in op.writes} | {bits for bits, _ in plan.signs}
    gradients = {s for op in updates for s in op.reads}
    activations = set(plan.activations)
    found = []
    for s, storage in enumerate(problem.storages):
        if s in packed:
            found.append(_PACKED)
        elif profile is not None and s in known:
            found.append(ROLE_WORDS[profile.storages[known[s]].role])
        elif profile is None and storage.resident:
            found.append(_ALWAYS)
        else:
            role = Role.ACTIVATION if s in activations else Role.GRADIENT if s in gradients else Role.OTHER
            found.append(ROLE_WORDS[role])
    return found


def counterparts(plan: StepPlan, profile: Profile) -> dict[int, int]:
    """Storages of the plan's problem -> those of `profile`: residents by name, others by the op that makes them.

    An op's storages may share a name; their places among what it makes tell them apart.
    """
    resident = {storage.name: index for index, storage in enumerate(profile.storages) if storage.resident}
    made = {(record.name, k): index for record in profile.ops for k, index in enumerate(record.makes)}
    found = {}
    for s, storage in enumerate(plan.problem.storages):
        if storage.resident:
            index = resident.get(storage.name)
        else:
            maker = plan.problem.ops[plan.problem.producers[s][0]]
            index = made.get((maker.name, maker.writes.index(s)))
        if index is not None:
            found[s] = index
    return found
