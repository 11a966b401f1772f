"""A sweep as CSV and as tables."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.experiments.case import Case
from lowtide.experiments.op_times import Accounting
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.files import write_csv
from lowtide.units import format_bytes, format_ms

_PARTS = ("parameter", "gradient", "activation", "optimizer_state", "other", "workspace")
_ACCOUNTING = tuple(field.name for field in fields(Accounting))
_FATES = ("kept", "recomputed", "packed", "swapped")
COLUMNS = (
    *("batch_size", "turns", "outcome_with", "outcome_without", "peak_with_B", "peak_without_B", "reduction"),
    *("budget_B", "predicted_peak_B", "predicted_peak_without_B"),
    *(f"with_{part}_B" for part in _PARTS),
    *(f"without_{part}_B" for part in _PARTS),
    *("ms_with", "ms_with_low", "ms_with_high", "ms_without", "ms_without_low", "ms_without_high"),
    *("overhead", "overhead_low", "overhead_high", "predicted_overhead", "bound"),
    *("predicted_ms_with", "predicted_ms_without"),
    *(f"{part}_ms" for part in _ACCOUNTING),
    *(f"{fate}_activations" for fate in _FATES),
    *(f"{fate}_B" for fate in _FATES),
    *("updates", "update_parts", "planning_s", "startup_with_s", "startup_without_s"),
    *("losses_equal", "steps", "failure_with", "failure_without"),
)


def write_sweep_csv(found: Sweep, path: Path) -> None:
    """One row per batch size; what was not measured is empty."""
    write_csv(path, COLUMNS, map(_row, found.pairs))


def _row(pair: Pair) -> dict[str, object]:
    mine, other = pair.planned, pair.plain
    row: dict[str, object] = {
        "batch_size": pair.batch_size,
        "turns": mine.turns.value,
        "outcome_with": mine.outcome.value,
        "outcome_without": other.outcome.value,
        "peak_with_B": mine.peak_B,
        "peak_without_B": other.peak_B,
        "reduction": pair.reduction,
        "startup_with_s": mine.startup_s,
        "startup_without_s": other.startup_s,
        "losses_equal": None if pair.equal is None else int(pair.equal),
        "steps": len(other.ms or mine.ms),
        "failure_with": mine.failure,
        "failure_without": other.failure,
    }
    for word, case in (("with", mine), ("without", other)):
        row |= {f"{word}_{part.role}_B": part.bytes for part in case.parts}
        row |= _three(f"ms_{word}", case.ms)
    row |= _three("overhead", pair.ratios)
    if mine.plan is not None:
        row |= _plan_row(mine)
    if pair.accounting is not None:
        row |= {f"{part}_ms": getattr(pair.accounting, part) for part in _ACCOUNTING}
    return row


def _plan_row(case: Case) -> dict[str, object]:
    assert case.plan is not None
    plan = case.plan.figures
    fates = {fate: getattr(case.plan.activations, fate) for fate in _FATES}
    return {
        "budget_B": plan.budget_B,
        "predicted_peak_B": plan.predicted_peak_B,
        "predicted_peak_without_B": plan.unplanned_peak_B,
        "predicted_overhead": plan.predicted_overhead,
        "bound": plan.bound,
        "predicted_ms_with": case.plan.predicted_ms,
        "predicted_ms_without": case.plan.unplanned_ms,
        **{f"{fate}_activations": some.count for fate, some in fates.items()},
        **{f"{fate}_B": some.bytes for fate, some in fates.items()},
        "updates": plan.updates,
        "update_parts": plan.update_parts,
        "planning_s": plan.planning_s,
    }


def _three(name: str, values: Sequence[float]) -> dict[str, object]:
    if not values:
        return {}
    return {name: median(values), f"{name}_low": min(values), f"{name}_high": max(values)}


def sweep_table(found: Sweep) -> Group:
    """Memory and time by batch size, where the extra time goes, and what failed."""
    title = Text(f"{found.model}, budget {found.budget}, {found.machine}")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    columns = ("batch", "peak without", "with", "lower by", "step without", "with", "overhead", "predicted", "bound")
    for column in (*columns, "kept", "recomputed", "packed", "swapped", "losses"):
        table.add_column(column, justify="right", no_wrap=True)
    failures = []
    for pair in found.pairs:
        table.add_row(str(pair.batch_size), *_memory(pair), *_time(pair), *_fates(pair), _equal(pair))
        for word, case in (("with a plan", pair.planned), ("without a plan", pair.plain)):
            if case.failure is not None:
                failures.append(Text(f"batch size {pair.batch_size}, {word}: {case.failure}"))
    return Group(table, *failures, *(Text(line) for line in _turns(found)))


def _memory(pair: Pair) -> tuple[str, ...]:
    peaks = [
        case.outcome.value if case.peak_B is None else format_bytes(case.peak_B) for case in (pair.plain, pair.planned)
    ]
    return (*peaks, "-" if pair.reduction is None else f"{pair.reduction:.1%}")


def _time(pair: Pair) -> tuple[str, ...]:
    times = ["-" if not case.ms else format_ms(median(case.ms)) for case in (pair.plain, pair.planned)]
    overhead = "-"
    if pair.overhead is not None:
        overhead = f"{pair.overhead:+.1%} ({min(pair.ratios):+.0%} to {max(pair.ratios):+.0%})"
    plan = pair.planned.plan
    predicted = (
        ("-", "-") if plan is None else (f"{plan.figures.predicted_overhead:+.1%}", f"{plan.figures.bound:+.1%}")
    )
    return (*times, overhead, *predicted)


def _fates(pair: Pair) -> tuple[str, ...]:
    plan = pair.planned.plan
    if plan is None:
        return ("-",) * len(_FATES)
    return tuple(str(getattr(plan.activations, fate).count) for fate in _FATES)


def _equal(pair: Pair) -> str:
    return "-" if pair.equal is None else "equal" if pair.equal else "NOT EQUAL"


def _turns(found: Sweep) -> list[str]:
    """How with and without were run beside each other."""
    by_turns: dict[str, list[str]] = {}
    for pair in found.pairs:
        by_turns.setdefault(pair.planned.turns.value, []).append(str(pair.batch_size))
    return [f"With and without a plan at batch size {', '.join(sizes)}: {turns}." for turns, sizes in by_turns.items()]
