"""The page's tables: columns of values, which the page sorts, filters and shows a window of."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.reporting.plan_view import counterparts
from lowtide.reporting.step_view import StepView

Values = Sequence[str] | Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class Column:
    """One column; `kind` says how it is written and sorted: text, path, op, where, choice, count, bytes, ms, rate."""

    label: str
    kind: str
    width: int
    """Pixels; columns of names are as wide as their longest."""
    values: Values
    hint: str = ""
    total: bool = False
    """Does the sum over rows mean something?"""


@dataclass(frozen=True)
class PageTable:
    """Columns of equal length."""

    key: str
    title: str
    note: str
    columns: tuple[Column, ...]
    sort: int
    """The column that it is sorted by at first: numbers from the largest, or in the order of the rows for column 0."""


def ops_table(profile: Profile, plan: StepPlan | None) -> PageTable:
    """One row per op of the captured step."""
    ops = profile.ops
    columns = [
        Column("rank", "count", 62, [op.rank for op in ops], "place in the order of execution"),
        Column("name", "text", 190, [op.name for op in ops]),
        Column("phase", "choice", 84, [op.phase.value for op in ops]),
        Column("time", "ms", 80, [op.runtime_ms for op in ops], "median of the measured runs", total=True),
        Column("peak", "bytes", 90, [op.peak_mem_B for op in ops], "device bytes at the highest point while it runs"),
        Column("makes", "bytes", 90, [op.output_B for op in ops], "bytes of its new storages", total=True),
        Column("workspace", "bytes", 94, [op.workspace_B for op in ops], "bytes that it takes only while it runs"),
        Column("module", "path", 250, [op.module for op in ops]),
        Column("line", "where", 200, [op.source for op in ops], "of the user's or the library's source"),
        Column("op", "op", 120, [op.op for op in ops], "what is called, in full under the mouse"),
        Column("role", "choice", 112, [op.role.value.replace("_", " ") for op in ops], "of what it makes"),
        Column("shape", "text", 170, [f"{op.dtype}{list(op.shape)}" for op in ops], "of the first tensor it makes"),
    ]
    if plan is not None:
        runs = {plan.problem.ops[o].name: count for o, count in plan.runs.items()}
        columns.insert(
            3,
            Column("runs", "count", 60, [runs.get(op.name, 1) for op in ops], "how often it runs in the planned step"),
        )
    return PageTable("ops", "Ops", "Every op of the captured step, as measured.", tuple(columns), 0)


def steps_table(view: StepView) -> PageTable:
    """One row per run of the planned step."""
    runs = view.runs
    return PageTable(
        "steps",
        "Steps of the plan",
        "Every op in the order in which the plan runs it; what is recomputed stands there a second time.",
        (
            Column("step", "count", 62, list(range(len(runs)))),
            Column("name", "text", 220, [run.name for run in runs]),
            Column("kind", "choice", 96, [run.kind for run in runs], "part of the program, or put there by the plan"),
            Column("phase", "choice", 84, [run.phase for run in runs]),
            Column("starts", "ms", 84, [run.start_ms for run in runs], "predicted"),
            Column("time", "ms", 80, [run.ms for run in runs], "measured when the plan was made", total=True),
            Column("memory", "bytes", 92, view.totals, "device bytes while it runs, predicted"),
            Column("module", "path", 280, [run.module for run in runs]),
            Column("line", "where", 210, [run.source for run in runs]),
        ),
        0,
    )


def activations_table(profile: Profile | None, plan: StepPlan | None) -> PageTable | None:
    """One row per activation, with what the plan does to it; None where neither is known."""
    title, note = "Activations", "Made in forward, read in backward."
    if profile is not None:
        return PageTable("activations", title, note, _measured_columns(profile, plan), 1)
    if plan is None:
        return None
    fates = plan.fates
    makers = [plan.actions[fate.op] for fate in fates]
    storages = [plan.problem.storages[fate.storage] for fate in fates]
    columns = (
        Column("name", "text", 230, [storage.name for storage in storages]),
        Column("bytes", "bytes", 96, [storage.bytes for storage in storages], total=True),
        Column("plan", "choice", 110, [fate.what for fate in fates]),
        Column("module", "path", 360, [maker.module for maker in makers]),
        Column("line", "where", 300, [maker.source for maker in makers]),
    )
    return PageTable("activations", title, note, columns, 1)


def _measured_columns(profile: Profile, plan: StepPlan | None) -> tuple[Column, ...]:
    found = profile.activations
    columns = [
        Column("name", "text", 180, [a.name for a in found], "of the op that makes it"),
        Column("bytes", "bytes", 90, [a.memory_size_B for a in found], total=True),
        Column(
            "idle", "ms", 80, [a.inactive_time_ms for a in found], "from its last forward to its first backward use"
        ),
        Column("recompute", "ms", 92, [a.recomp_time_ms for a in found], "time to make it again"),
        Column("bytes per ms", "rate", 112, [a.recompute_ratio for a in found], "saved per time of recomputing"),
        Column("swap", "ms", 80, [a.swap_time_ms for a in found], "time of one transfer"),
        Column("module", "path", 250, [a.module for a in found]),
        Column("line", "where", 190, [a.source for a in found]),
        Column("made", "count", 66, [a.created for a in found], "rank of the op that makes it"),
        Column("back", "count", 66, [a.first_bw_use for a in found], "rank of its first use in backward"),
    ]
    if plan is not None:
        known = counterparts(plan, profile)
        fate = {known[f.storage]: f.what for f in plan.fates if f.storage in known}
        columns.insert(2, Column("plan", "choice", 104, [fate.get(a.storage, "") for a in found]))
    return tuple(columns)
