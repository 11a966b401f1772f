"""The largest batches under a memory limit: CSV, a picture, a table."""

from pathlib import Path

from matplotlib.axes import Axes
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.experiments.case import Outcome
from lowtide.experiments.largest.record import Largest
from lowtide.files import write_csv
from lowtide.reporting.style import INK, LIMIT_COLOUR, WITH, WITHOUT, Scale, framed, shorten
from lowtide.units import format_bytes

COLUMNS = (
    *("kind", "batch_size", "outcome", "memory_limit_B", "base_B", "budget_B", "peak_B", "predicted_peak_B"),
    *("unplanned_peak_B", "predicted_overhead", "recomputed", "packed", "swapped", "startup_s", "failure"),
)


def write_largest_csv(found: Largest, path: Path) -> None:
    """One row per trial in the order they ran, then the two at the smallest batch that fails eagerly."""
    rows = []
    kinds = [("with a plan" if case.settings.planned else "eager", case) for case in found.trials]
    kinds += [("with a plan, share of eager", found.planned_there)] if found.planned_there else []
    kinds += [("eager, no limit", found.eager_need)] if found.eager_need else []
    for kind, case in kinds:
        row: dict[str, object] = {
            "kind": kind,
            "batch_size": case.settings.batch_size,
            "outcome": case.outcome.value,
            "memory_limit_B": case.settings.memory_limit_B,
            "base_B": case.base_B,
            "peak_B": case.peak_B,
            "startup_s": case.startup_s,
            "failure": case.failure,
        }
        if case.plan is not None:
            plan, fates = case.plan.figures, case.plan.activations
            row |= {
                "budget_B": plan.budget_B,
                "predicted_peak_B": plan.predicted_peak_B,
                "unplanned_peak_B": plan.unplanned_peak_B,
                "predicted_overhead": plan.predicted_overhead,
                "recomputed": fates.recomputed.count,
                "packed": fates.packed.count,
                "swapped": fates.swapped.count,
            }
        rows.append(row)
    write_csv(path, COLUMNS, rows)


def draw_largest(found: Largest, path: Path) -> None:
    """Measured peaks of all trials against the batch size; those that failed stand at the top edge."""
    most = max([case.peak_B or 0 for case in (*found.trials, found.eager_need) if case] + [found.memory_limit_B])
    scale = Scale.of_bytes(most)
    top = 1.16 * most / scale.factor
    machine = found.machine
    lines = (
        f"memory limit of the process, kept by the operating system: {format_bytes(found.memory_limit_B)}; "
        f"{shorten(machine.processor, 50)}, torch {machine.torch}",
        "dots: trained, at the allocator's peak; crosses: out of memory or no plan fits; each trial in its own process",
    )
    with framed(path, f"{shorten(found.model, 40)}: the largest batch under a limit", lines, (10.5, 6)) as figure:
        axes = figure.add_subplot()
        for planned, colour, height in ((False, WITHOUT, 0.965), (True, WITH, 0.92)):
            _draw_trials(axes, found, planned=planned, colour=colour, failed_at=height * top, scale=scale)
        _draw_failing(axes, found, scale)
        if found.base_B is not None:
            left = (found.memory_limit_B - found.base_B) / scale.factor
            axes.axhline(left, color=LIMIT_COLOUR, linestyle="--", linewidth=1.3)
            said = f"limit less {format_bytes(found.base_B)} for Python and torch"
            along = axes.get_yaxis_transform()
            axes.text(0.01, left, said, transform=along, ha="left", va="bottom", size=9, color=LIMIT_COLOUR)
        axes.set_ylim(0, top)
        axes.set_xscale("log", base=2)
        sizes = sorted({found.trained(planned=planned) for planned in (False, True)} - {0} | {1})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("batch size, logarithmic; named: the largest that train")
        axes.set_ylabel(f"peak device memory ({scale.unit})")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)


def _draw_failing(axes: Axes, found: Largest, scale: Scale) -> None:
    """Hollow: the smallest batch that fails eagerly, eagerly without the limit and with the plan."""
    lower = "" if found.reduction is None else f", {found.reduction:.0%} lower"
    for case, colour, words in (
        (found.eager_need, WITHOUT, "at batch {}, without the limit,\neager needs {}"),
        (found.planned_there, WITH, "at batch {}, under the limit,\na plan takes {}" + lower),
    ):
        if case is not None and case.peak_B is not None:
            at = (case.settings.batch_size, case.peak_B / scale.factor)
            label = words.format(at[0], format_bytes(case.peak_B))
            axes.plot(
                *at,
                marker="o",
                markerfacecolor="white",
                color=colour,
                linestyle="",
                markersize=8,
                zorder=5,
                label=label,
            )


def _draw_trials(axes: Axes, found: Largest, *, planned: bool, colour: str, failed_at: float, scale: Scale) -> None:
    cases = sorted((c for c in found.trials if c.settings.planned is planned), key=lambda c: c.settings.batch_size)
    trained = [(c.settings.batch_size, (c.peak_B or 0) / scale.factor) for c in cases if c.outcome is Outcome.TRAINED]
    failed = [(c.settings.batch_size, failed_at) for c in cases if c.outcome is not Outcome.TRAINED]
    largest = found.trained(planned=planned)
    label = f"{'with a plan' if planned else 'eager'}: up to {largest}"
    axes.plot([x for x, _ in trained], [y for _, y in trained], color=colour, marker="o", label=label)
    axes.plot([x for x, _ in failed], [y for _, y in failed], color=colour, marker="x", linestyle="", markersize=8)
    if largest:
        axes.axvline(largest, color=colour, linewidth=1, linestyle=":")


def largest_table(found: Largest) -> Group:
    """The two batches, and what memory the first that fails eagerly takes."""
    title = Text(f"{found.model} under a memory limit of {format_bytes(found.memory_limit_B)}", style="bold")
    table = Table("", "trains", "fails", box=None, padding=(0, 2, 0, 0))
    for planned, word in ((False, "eager"), (True, "with a plan")):
        failed = found.failed(planned=planned)
        none = f"none up to {found.most}"
        table.add_row(word, str(found.trained(planned=planned)), none if failed is None else str(failed))
    return Group(title, table, *(Text(line) for line in _at_the_failing(found)))


def _at_the_failing(found: Largest) -> list[str]:
    there, need = found.planned_there, found.need_B
    if there is None:
        return []
    size = there.settings.batch_size
    if found.reduction is None or need is None or there.peak_B is None:
        return [f"At batch {size}, which fails eagerly: {there.failure or 'what eager needs is not known'}."]
    return [
        f"At batch {size}, which fails eagerly: eager needs {format_bytes(need[0])} ({need[1]}), the plan takes "
        f"{format_bytes(there.peak_B)} (measured under the limit), {found.reduction:.1%} lower."
    ]
