"""The table at the end of `lowtide train`: before and after, predicted and measured."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.records.training_run import Amount, PlanFigures, TrainedStep, TrainingRun
from lowtide.reporting.tables import figures_table
from lowtide.units import format_bytes, format_ms

_NONE = "-"


def step_line(number: int, total: int, step: TrainedStep, loss: float, budget: int | None) -> Text:
    """One line per step, while training runs."""
    width = len(str(total))
    line = Text(f"step {number:>{width}}/{total}  loss {loss:<12.8g}  {format_ms(step.ms):>9}")
    if step.peak_B is not None:
        line.append(f"  peak {format_bytes(step.peak_B)}")
        if budget is not None:
            share = f" of {format_bytes(budget)} ({step.peak_B / budget:.1%})"
            line.append(share, style="green" if step.peak_B <= budget else "bold red")
    if step.eager_ms is not None:
        line.append(f"  eager {format_ms(step.eager_ms)}", style="dim")
        if step.eager_peak_B is not None:
            line.append(f", {format_bytes(step.eager_peak_B)}", style="dim")
    return line


def training_table(run: TrainingRun) -> Group:
    """What the budget changed, and what that cost."""
    plan = run.plan
    before = "eager, beside it" if run.compared else "" if plan is None else "as captured, predicted"
    table = Table(
        "", before, "trained", "", title=Text(f"{run.model}, {run.optimizer}"), box=None, padding=(0, 2, 0, 0)
    )
    table.title_justify = "left"
    _peaks(table, run)
    if plan is not None:
        fates = (plan.kept, plan.recomputed, plan.packed, plan.swapped)
        whole = Amount(sum(some.count for some in fates), sum(some.bytes for some in fates))
        table.add_row("activations kept", _some(whole), _some(plan.kept), _share(plan.kept.bytes, whole.bytes))
        table.add_row("  recomputed", _NONE, _some(plan.recomputed), _share(plan.recomputed.bytes, whole.bytes))
        into = f"{_share(plan.packed.bytes, whole.bytes)}, kept in {format_bytes(plan.packed_into_B)}"
        table.add_row("  packed", _NONE, _some(plan.packed), into if plan.packed.count else "")
        table.add_row("  swapped", _NONE, _some(plan.swapped), _share(plan.swapped.bytes, whole.bytes))
        table.add_row("updated early", _NONE, *_updates(plan))
    _times(table, run)
    return Group(Text(), table, Text(), Text(verdict(run)))


def ranks_table(runs: Sequence[TrainingRun]) -> Group:
    """What each rank took, and its losses."""
    columns = ("rank", "peak", "of the budget", "eager peak", "step time", "first loss", "last loss", "eager")
    table = figures_table(Text(f"{len(runs)} ranks"), columns)
    for rank, run in enumerate(runs):
        budget, peak = None if run.plan is None else run.plan.budget_B, run.peak_B
        table.add_row(
            *(str(rank), _bytes(peak), _NONE if peak is None or budget is None else f"{peak / budget:.1%}"),
            *(_bytes(run.eager_peak_B), format_ms(run.step_ms)),
            *(_NONE if step.loss is None else f"{step.loss:.8g}" for step in (run.steps[0], run.steps[-1])),
            "DIFFERS" if run.difference is not None else "equal" if run.compared else "not compared",
        )
    said = [Text(f"rank {rank}: {verdict(run)}") for rank, run in enumerate(runs) if run.difference is not None]
    return Group(Text(), table, *said)


def _peaks(table: Table, run: TrainingRun) -> None:
    plan, peak, eager = run.plan, run.peak_B, run.eager_peak_B
    unplanned = None if plan is None else plan.unplanned_peak_B
    reference = eager if eager is not None else unplanned
    change = "" if peak is None or reference is None else f"{peak / reference - 1:+.1%}"
    table.add_row("peak", _bytes(reference), _bytes(peak), change)
    if plan is None:
        return
    if eager is not None:
        table.add_row("  as captured, predicted", _bytes(unplanned), "", f"{plan.unplanned_peak_B / eager - 1:+.2%}")
    off = "" if peak is None else f"measured differs by {peak / plan.predicted_peak_B - 1:+.2%}"
    table.add_row("  predicted", "", _bytes(plan.predicted_peak_B), off)
    left = "" if peak is None else f"{plan.budget_B - peak:,} bytes left" if peak <= plan.budget_B else "EXCEEDED"
    table.add_row("  budget", "", _bytes(plan.budget_B), left)


def _times(table: Table, run: TrainingRun) -> None:
    plan = run.plan
    eager = _NONE if run.eager_ms is None else format_ms(run.eager_ms)
    table.add_row("step time", eager, format_ms(run.step_ms), f"median of {_times_of(len(run.warm), 'step')}")
    if run.overhead is not None:
        low, high = min(run.ratios) - 1, max(run.ratios) - 1
        pairs = f"median of {_times_of(len(run.ratios), 'neighbouring pair')}, {low:+.1%} to {high:+.1%}"
        table.add_row("overhead", "", f"{run.overhead:+.1%}", pairs)
    if plan is not None:
        said = "" if run.compared else "; not measured, --compare does"
        parts = f"recomputing {plan.recompute_overhead:.1%}, packing {plan.pack_overhead:.1%}"
        waits = "swapping" if plan.swapped.count or not plan.swap_overhead else "waiting for collectives"
        parts += f", {waits} {plan.swap_overhead:.1%}{said}"
        table.add_row(
            "  predicted" if run.compared else "overhead, predicted", "", f"{plan.predicted_overhead:+.1%}", parts
        )
        table.add_row(
            "  no schedule below", "", f"{plan.bound:+.1%}", f"{plan.policy}, {plan.planning_s:.1f} s: {plan.note}"
        )
    table.add_row("to start", "", f"{run.startup_s:.1f} s", "everything before the first step")


def verdict(run: TrainingRun) -> str:
    """Whether training was equal to eager training, in a sentence."""
    if run.difference is not None:
        return f"NOT EQUAL to eager training: {run.difference}."
    if run.compared:
        return (
            f"Equal to eager training, bit for bit, after every step of {len(run.steps)}: loss, gradients, parameters, "
            "buffers, optimizer state, random generator."
        )
    if run.plan is None:
        return "Trained as captured: no budget was given."
    if not run.plan.rewritten:
        return "Everything fits into the budget as it is: nothing was rewritten."
    return "Not compared with eager training: --compare does."


def _updates(plan: PlanFigures) -> tuple[str, str]:
    if plan.update_parts < 2:
        return "0 parameters", "all at the end, in one optimizer.step()"
    return f"{plan.updates} parameters", f"in {plan.update_parts} parts, as soon as their gradients are complete"


def _times_of(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def _some(some: Amount) -> str:
    return f"{some.count:,}, {format_bytes(some.bytes)}" if some.count else _NONE


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _bytes(size: int | None) -> str:
    return _NONE if size is None else format_bytes(size)
