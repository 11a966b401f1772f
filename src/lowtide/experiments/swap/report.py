"""Recompute only, swap only and both, as CSV, as a picture and as tables."""

from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.swap.record import Method, SwapComparison, SwapRow
from lowtide.files import write_csv
from lowtide.reporting.tables import figures_table, ms_cell, ratio_cell
from lowtide.units import format_bytes

_COSTS = ("recompute", "pack", "unpack", "state", "swap", "swap_wait", "program", "update", "other")
_FATES = ("kept", "recomputed", "packed", "swapped")
COLUMNS = (
    *("left", "way", "budget_B", "predicted_peak_B", "measured_peak_B", "predicted_overhead", "bound"),
    *("against_eager", "against_eager_low", "against_eager_high"),
    *("against_captured", "against_captured_low", "against_captured_high"),
    *("difference_ms", *(f"{part}_ms" for part in _COSTS)),
    *(f"{fate}_activations" for fate in _FATES),
    *(f"{fate}_B" for fate in _FATES),
    *("off_device_B", "planning_s", "failure"),
)
_COLOURS = {Method.RECOMPUTE: "#D55E00", Method.SWAP: "#56B4E9", Method.BOTH: "#009E73"}


def write_swap_csv(found: SwapComparison, path: Path) -> None:
    """One row per budget and method; figures are empty where there is no plan."""
    write_csv(path, COLUMNS, (_cells(found, row) for row in found.rows))


def _cells(found: SwapComparison, row: SwapRow) -> dict[str, object]:
    cells: dict[str, object] = {"left": row.left, "way": row.way.value, "budget_B": row.budget_B}
    if row.plan is None:
        return cells | {"failure": row.failure}
    plan, parts = row.plan, found.accounting(row, row.wait_ms)
    for name, values in (("eager", found.against_eager(row)), ("captured", found.against_captured(row))):
        cells |= {f"against_{name}": median(values)}
        cells |= {f"against_{name}_low": min(values), f"against_{name}_high": max(values)}
    cells |= {"difference_ms": parts.difference} | {f"{part}_ms": getattr(parts, part) for part in _COSTS}
    for fate in _FATES:
        some = getattr(plan, fate)
        cells |= {f"{fate}_activations": some.count, f"{fate}_B": some.bytes}
    return cells | {
        "predicted_peak_B": plan.predicted_peak_B,
        "measured_peak_B": row.measured_peak_B,
        "predicted_overhead": plan.predicted_overhead,
        "bound": plan.bound,
        "off_device_B": plan.swapped_B,
        "planning_s": plan.planning_s,
    }


def draw_swap(found: SwapComparison, path: Path) -> None:
    """Overhead against the share of bytes that is left, a line per method: measured with its spread, and predicted."""
    from lowtide.reporting.style import framed, shorten

    largest = found.transfer[-1]
    lines = (
        f"{shorten('; '.join(found.batch), 70)}; optimizer: {shorten(found.optimizer, 30)}; {found.device}, "
        f"{found.threads} threads, torch {found.torch}",
        f"{found.transfer_tier}: {_speed(largest.bytes, largest.out_ms)} out, {_speed(largest.bytes, largest.in_ms)} "
        f"back, {found.transfer_drag:.2f} ms of compute lost per MiB; median and range of {len(found.eager_ms)} rounds",
    )
    with framed(path, f"{shorten(found.model, 40)}: recompute, swap, or both", lines, (10, 6)) as figure:
        axes = figure.add_subplot()
        for way, shift in zip(Method, (-0.7, 0.0, 0.7), strict=True):
            rows = sorted((r for r in found.rows if r.way is way and r.plan is not None), key=lambda row: row.left)
            if not rows:
                continue
            at = [100 * row.left + shift for row in rows]
            values = [found.against_captured(row) for row in rows]
            middle = [100 * median(each) for each in values]
            low = [100 * (median(each) - min(each)) for each in values]
            high = [100 * (max(each) - median(each)) for each in values]
            colour = _COLOURS[way]
            axes.errorbar(at, middle, yerr=[low, high], fmt="o-", color=colour, capsize=3, label=f"{way}, measured")
            predicted = [100 * row.plan.predicted_overhead for row in rows if row.plan is not None]
            axes.plot(at, predicted, color=colour, marker="x", linestyle=":", label=f"{way}, predicted")
        axes.axhline(0, color="#999999", linewidth=0.8)
        axes.set_xlabel(
            f"bytes left above the residents (%); 100 % is {format_bytes(found.unplanned_peak_B)}, "
            f"0 % is {format_bytes(found.resident_B)}"
        )
        axes.set_ylabel("extra time against the captured step (%)")
        axes.invert_xaxis()
        axes.legend(loc="best")


def swap_table(found: SwapComparison) -> Group:
    """Budgets and methods with their cost, then where the extra time goes, then what swapping removes."""
    title = Text(f"{found.model}, {found.optimizer}: as captured {format_bytes(found.unplanned_peak_B)}, ")
    title.append(f"residents {format_bytes(found.resident_B)}; {found.transfer_tier}")
    columns = ("left", "way", "measured peak", "predicted", "bound", "against captured", "against eager", "swapped")
    costs = figures_table(title, columns)
    where = ("left", "way", "difference", "recompute", "pack", "swap calls", "swap wait", "program, update", "else")
    times = figures_table(Text("Where the extra time against the captured step goes"), where)
    said: list[Text] = []
    for row in found.rows:
        share = f"{row.left:.0%}"
        if row.plan is None:
            costs.add_row(share, row.way, "no plan", *["-"] * 5)
            said.append(Text(f"{share}, {row.way}: {row.failure}"))
            continue
        over = " EXCEEDED" if (row.measured_peak_B or 0) > row.budget_B else ""
        costs.add_row(
            *(share, row.way, f"{format_bytes(row.measured_peak_B or 0)}{over}"),
            *(f"{row.plan.predicted_overhead:+.1%}", f"{row.plan.bound:+.1%}"),
            *(ratio_cell(found.against_captured(row)), ratio_cell(found.against_eager(row))),
            f"{row.plan.swapped.count}, {format_bytes(row.plan.swapped.bytes)}",
        )
        parts = found.accounting(row, row.wait_ms)
        packing = parts.pack + parts.unpack + parts.state
        figures = (parts.difference, parts.recompute, packing, parts.swap, parts.swap_wait)
        times.add_row(share, row.way, *(ms_cell(x) for x in (*figures, parts.program + parts.update, parts.other)))
    for left in dict.fromkeys(row.left for row in found.rows):
        removed = found.removed(left)
        if removed is not None:
            said.append(Text(f"{left:.0%} left: swapping removes {removed:.0%} of what recomputing alone costs."))
    rounds = Text(f"Median of {len(found.eager_ms)} rounds (lowest to highest); every round runs all of them in turn.")
    return Group(costs, rounds, Text(), times, Text(), *said)


def _speed(size: int, ms: float) -> str:
    return f"{size / ms / 1e6:.1f} GB/s"
