"""What budgets cost, as CSV, as a picture and as tables."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.budgets.record import BudgetRow, Budgets
from lowtide.files import write_csv
from lowtide.reporting.tables import figures_table, ms_cell, ratio_cell
from lowtide.units import format_bytes

COLUMNS = (
    *("left", "budget_B", "predicted_peak_B", "measured_peak_B", "predicted_overhead", "bound", "planning_s"),
    *("against_eager", "against_eager_low", "against_eager_high"),
    *("against_captured", "against_captured_low", "against_captured_high"),
    *("difference_ms", "recompute_ms", "pack_ms", "unpack_ms", "state_ms"),
    *("swap_ms", "swap_wait_ms", "program_ms", "update_ms", "other_ms"),
    "failure",
)


def write_budgets_csv(found: Budgets, path: Path) -> None:
    """One row per budget; figures are empty where there is no plan."""
    table = []
    for row in found.rows:
        figures: list[object] = [row.left, row.budget_B, row.predicted_peak_B, row.measured_peak_B]
        figures += [row.predicted_overhead, row.bound, row.planning_s]
        if row.ops is None:
            figures += [None] * 16
        else:
            figures += [*_spread(found.against_eager(row)), *_spread(found.against_captured(row))]
            parts = found.accounting(row)
            figures += [parts.difference, parts.recompute, parts.pack, parts.unpack, parts.state]
            figures += [parts.swap, parts.swap_wait, parts.program, parts.update, parts.other]
        table.append([*figures, row.failure])
    write_csv(path, COLUMNS, table)


def draw_budgets(found: Budgets, path: Path) -> None:
    """Overhead against the share of bytes that is left: measured with its spread, predicted, and the bound."""
    from lowtide.records.vocabulary import Phase
    from lowtide.reporting.style import LIMIT_COLOUR, PHASE_COLOURS, framed, shorten

    rows = sorted((row for row in found.rows if row.ops is not None), key=lambda row: row.left)
    lines = (
        f"{shorten('; '.join(found.batch), 70)}; optimizer: {shorten(found.optimizer, 30)}; {found.device}, "
        f"{found.threads} threads, torch {found.torch}",
        f"each round runs eager, captured and all planned steps in turn; points: median of {len(found.eager_ms)} "
        "rounds, bars: all rounds",
    )
    with framed(path, f"{shorten(found.model, 40)}: what a budget costs", lines, (10, 6)) as figure:
        axes = figure.add_subplot()
        at = [100 * row.left for row in rows]
        for ratios, label, colour, shift in (
            (found.against_eager, "measured against eager", PHASE_COLOURS[Phase.FORWARD], -0.4),
            (found.against_captured, "measured against as captured", PHASE_COLOURS[Phase.OPTIMIZER], 0.4),
        ):
            points = [_spread(ratios(row)) for row in rows]
            middle = [100 * point[0] for point in points]
            low = [100 * (point[0] - point[1]) for point in points]
            high = [100 * (point[2] - point[0]) for point in points]
            places = [x + shift for x in at]
            axes.errorbar(places, middle, yerr=[low, high], fmt="o", color=colour, capsize=3, label=label, zorder=4)
        predicted = [100 * row.predicted_overhead for row in rows if row.predicted_overhead is not None]
        axes.plot(at, predicted, color="#D55E00", marker="x", linewidth=1.2, label="predicted", zorder=3)
        bounds = [100 * row.bound for row in rows if row.bound is not None]
        axes.plot(at, bounds, color="#666666", linestyle="--", linewidth=1.2, label="no schedule can be below")
        for number, row in enumerate(row for row in found.rows if row.ops is None):
            once = "no plan fits" if number == 0 else None
            axes.axvline(100 * row.left, color=LIMIT_COLOUR, linewidth=1, linestyle=":", label=once)
        axes.axhline(0, color="#999999", linewidth=0.8)
        axes.set_xlabel(
            f"bytes left above the residents (%); 100 % is {format_bytes(found.unplanned_peak_B)}, "
            f"0 % is {format_bytes(found.resident_B)}"
        )
        axes.set_ylabel("extra time (%)")
        axes.invert_xaxis()
        axes.legend(loc="best")


def budgets_table(found: Budgets) -> Group:
    """Budgets with their cost, then where the extra time goes."""
    title = Text(f"{found.model}, {found.optimizer}: eager {format_bytes(found.eager_peak_B)}, ")
    title.append(f"as captured {format_bytes(found.captured_peak_B)}, residents {format_bytes(found.resident_B)}")
    columns = (
        "left",
        "budget",
        "predicted peak",
        "measured peak",
        "predicted",
        "bound",
        "against eager",
        "against captured",
    )
    costs = figures_table(title, columns)
    where = ("left", "difference", "recompute", "pack", "unpack", "state", "program", "update", "anything else")
    times = figures_table(Text("Where the extra time against the captured step goes"), where)
    captured = [mine / other - 1 for mine, other in zip(found.captured_ms, found.eager_ms, strict=True)]
    failures = []
    costs.add_row("all", "-", "-", format_bytes(found.captured_peak_B), "-", "-", ratio_cell(captured), "-")
    for row in found.rows:
        share = f"{row.left:.0%}"
        if row.failure is not None:
            costs.add_row(share, format_bytes(row.budget_B), "infeasible", *["-"] * 5)
            failures.append(Text(f"{share}: {row.failure}"))
            continue
        costs.add_row(share, *_costs(found, row))
        parts = found.accounting(row)
        figures = (parts.difference, parts.recompute, parts.pack, parts.unpack, parts.state)
        times.add_row(share, *(ms_cell(x) for x in (*figures, parts.program, parts.update, parts.other)))
    said = f"Median of {len(found.eager_ms)} rounds (lowest to highest); every round runs all of them in turn."
    return Group(costs, Text(said), Text(), times, *failures)


def _costs(found: Budgets, row: BudgetRow) -> list[str]:
    assert row.predicted_peak_B is not None
    assert row.measured_peak_B is not None
    over = " EXCEEDED" if row.measured_peak_B > row.budget_B else ""
    return [
        format_bytes(row.budget_B),
        format_bytes(row.predicted_peak_B),
        f"{format_bytes(row.measured_peak_B)}{over}",
        f"{row.predicted_overhead:+.1%}",
        f"{row.bound:+.1%}",
        ratio_cell(found.against_eager(row)),
        ratio_cell(found.against_captured(row)),
    ]


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)
