"""The tables of README.md and docs/results.md, from the records under reports/: written here, checked by a test."""

import re
from pathlib import Path
from statistics import median

from lowtide.errors import InputError, shown
from lowtide.experiments.budgets.record import Budgets
from lowtide.experiments.capture.record import Comparison
from lowtide.experiments.deeper.record import Deeper
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.process.record import WARM, ProcessMemory
from lowtide.experiments.startup.record import Startup
from lowtide.experiments.swap.record import Method, SwapComparison
from lowtide.experiments.sweep.record import Sweep
from lowtide.pages.fit.tables import (
    calibration_kinds,
    calibration_steps,
    longest_table,
    plans_table,
    public_errors,
    public_table,
)
from lowtide.pages.peers import compile_answers, compile_table, parallel_table, spread
from lowtide.units import format_bytes, format_ms

_HEAD = (
    "| | eager peak | captured peak | captured against eager, time | op times added up, against a plain run |",
    "|---|---|---|---|---|",
)


def cost_table(folder: Path) -> str:
    """The table of what a captured step costs, from the files that `make bench-capture` wrote into `folder`."""
    rows = []
    for path in sorted(folder.glob("capture_*.json")):
        found = Comparison.load(path)
        ratios = sorted(found.ratios)
        rows.append(
            f"| {found.model} | {format_bytes(found.eager_peak_B)} "
            f"| {format_bytes(found.captured_peak_B)} ({found.captured_peak_B / found.eager_peak_B - 1:+.2%}) "
            f"| {found.overhead:+.1%} (pairs from {ratios[0] - 1:+.0%} to {ratios[-1] - 1:+.0%}) "
            f"| {found.op_sum_ms / found.plain_ms - 1:+.1%} |"
        )
    return "\n".join([*_HEAD, *rows])


_BUDGETS_HEAD = (
    "| | bytes left | budget | measured peak | time against eager | against as captured | predicted | bound |",
    "|---|---|---|---|---|---|---|---|",
)


def budgets_table(folder: Path) -> str:
    """What budgets cost, from the files that `make bench-budgets` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/budgets.json")):
        found = Budgets.load(path)
        for row in found.rows:
            start = f"| {found.model} | {row.left:.0%} | {format_bytes(row.budget_B)}"
            if row.measured_peak_B is None or row.predicted_overhead is None or row.bound is None:
                rows.append(f"{start} | no plan | | | | |")
                continue
            rows.append(
                f"{start} | {format_bytes(row.measured_peak_B)} | {spread(found.against_eager(row))} "
                f"| {spread(found.against_captured(row))} | {row.predicted_overhead:+.1%} | {row.bound:+.1%} |"
            )
    return "\n".join([*_BUDGETS_HEAD, *rows])


_PROCESS_HEAD = (
    "| | | budget | peak, allocator | peak, process | page faults a step | step time against warm eager | predicted "
    "| bound | losses |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def process_table(folder: Path) -> str:
    """All kinds of step beside each other, from the files that `make bench` or `make bench-full` wrote there."""
    rows = []
    for path in sorted(folder.glob("*/process.json")):
        found = ProcessMemory.load(path)
        for row in found.rows:
            if row.kind == WARM and row.group:
                continue  # the control of another group
            start = f"| {found.model} | {row.kind} | {'' if row.budget_B is None else format_bytes(row.budget_B)}"
            if row.failure is not None:
                rows.append(f"{start} | no plan | | | | | | |")
                continue
            high, peak = found.high(row), found.peak(row)
            over = "" if row.budget_B is None else f" ({high / row.budget_B - 1:+.1%})"
            promise = ("", "") if row.promise is None else (f"{row.promise.overhead:+.1%}", f"{row.promise.bound:+.1%}")
            cells = (
                "" if peak is None else format_bytes(peak),
                f"{format_bytes(high)}{over}",
                f"{median(step.faults for step in found.counted(row)):,.0f}",
                spread(found.against_warm(row)),
                *promise,
                "equal" if found.is_equal(row) else "others",
            )
            rows.append(f"{start} | {' | '.join(cells)} |")
    return "\n".join([*_PROCESS_HEAD, *rows])


_SWAP_HEAD = (
    "| | bytes left | recompute only | swap only | both | bound | swapping removes |",
    "|---|---|---|---|---|---|---|",
)


def swap_table(folder: Path) -> str:
    """Recompute only, swap only and both, from the files that `make bench-swap` wrote under `folder`.

    Extra time against the captured step of the same round, with the predicted one behind it.
    """
    rows = []
    for path in sorted(folder.glob("*/swap.json")):
        found = SwapComparison.load(path)
        for left in dict.fromkeys(row.left for row in found.rows):
            cells = []
            for row in (row for row in found.rows if row.left == left):
                if row.plan is None:
                    cells.append("no plan")
                else:
                    predicted = f"predicted {row.plan.predicted_overhead:+.1%}"
                    cells.append(f"{spread(found.against_captured(row))}, {predicted}")
            bounds = [row.plan.bound for row in found.rows if row.left == left and row.way is Method.BOTH and row.plan]
            removed = found.removed(left)
            last = (f"{bounds[0]:+.1%}" if bounds else "", "" if removed is None else f"{removed:.0%}")
            rows.append(f"| {found.model} | {left:.0%} | {' | '.join([*cells, *last])} |")
    return "\n".join([*_SWAP_HEAD, *rows])


_LIMITS_HEAD = (
    "| | limit of the process | largest batch, eager | with a plan | first batch that fails eagerly: eager needs "
    "| the plan takes |",
    "|---|---|---|---|---|---|",
)


def limits_table(folder: Path) -> str:
    """The largest batches under a memory limit, from the files that `make largest` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/largest.json")):
        found = Largest.load(path)
        eager, planned = (found.trained(planned=planned) for planned in (False, True))
        start = f"| {found.model} | {format_bytes(found.memory_limit_B)} | {eager} | {planned} |"
        there, need = found.planned_there, found.need_B
        if there is None or there.peak_B is None or need is None or found.reduction is None:
            rows.append(f"{start} | |")
            continue
        size = there.settings.batch_size
        takes = f"{format_bytes(there.peak_B)}, {found.reduction:.0%} less"
        rows.append(f"{start} {size}: {format_bytes(need[0])} | {takes} |")
    return "\n".join([*_LIMITS_HEAD, *rows])


_SWEEP_HEAD = (
    "| | batch size | peak without | with | less | step time with a plan | predicted | losses |",
    "|---|---|---|---|---|---|---|---|",
)


def sweep_table(folder: Path) -> str:
    """With and without a plan at several batch sizes, from the files that `make sweeps` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/sweep.json")):
        found = Sweep.load(path)
        for pair in found.pairs:
            start = f"| {found.model} | {pair.batch_size} |"
            without, with_plan, plan = pair.plain.peak_B, pair.planned.peak_B, pair.planned.plan
            if without is None or with_plan is None or plan is None or pair.reduction is None:
                rows.append(f"{start} {pair.plain.outcome.value} | {pair.planned.outcome.value} | | | | |")
                continue
            cells = (
                f"{format_bytes(without)} | {format_bytes(with_plan)} | {pair.reduction:.0%}",
                f"{spread(pair.ratios)} | {plan.figures.predicted_overhead:+.1%}",
                "equal" if pair.equal else "differ",
            )
            rows.append(f"{start} {' | '.join(cells)} |")
    return "\n".join([*_SWEEP_HEAD, *rows])


_STARTUP_HEAD = (
    "| | measured | until a step is planned | in eager steps | until the first loss, in eager steps "
    "| guards, of a step | the sentinel's forward, of a step | other shapes | all of them, in eager steps |",
    "|---|---|---|---|---|---|---|---|---|",
)


def startup_table(folder: Path) -> str:
    """What starting and other shapes cost, from the files that `make bench-startup` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/startup.json")):
        found = Startup.load(path)
        each = found.eager_step_s
        rows.append(
            f"| {found.model}, {found.budget} | {found.measure} | {found.whole_s:.0f} s | {found.whole_s / each:.1f} "
            f"| {found.first_loss_s / each:.1f} | {median(found.guards_s) / each:.2%} | {found.sentinel_s / each:.2f} "
            f"| {len(found.shapes)} | {found.shapes_s / each:.1f} |"
        )
    return "\n".join([*_STARTUP_HEAD, *rows])


_DEEPER_HEAD = (
    "| layers | ops | capture | provisional plan | measure | plan | an eager step |",
    "|---|---|---|---|---|---|---|",
)


def deeper_table(folder: Path) -> str:
    """What starting costs by the number of layers, from the file that `make bench-deeper` wrote into `folder`."""
    rows = [
        f"| {depth.layers} | {depth.ops:,} | {depth.capture_s:.1f} s | {depth.provisional_s:.1f} s "
        f"| {depth.measure_s:.1f} s | {depth.plan_s:.1f} s | {format_ms(1000 * depth.eager_s)} |"
        for depth in Deeper.load(folder / "deeper.json").depths
    ]
    return "\n".join([*_DEEPER_HEAD, *rows])


_RESULTS_HEAD = (
    "| | limit of the process | largest batch, eager | with a plan | memory of a step at batch 16, eager | with a plan "
    "| step time with a plan | losses |",
    "|---|---|---|---|---|---|---|---|",
)
_RESULTS_BATCH = 16


def results_table(reports: Path) -> str:
    """The figures that matter most: the largest batch under a limit, and what a plan saves and costs at one size."""
    rows = []
    for path in sorted(reports.glob("largest/*/largest.json")):
        largest = Largest.load(path)
        eager, planned = (largest.trained(planned=planned) for planned in (False, True))
        sweep = Sweep.load(reports / "sweep" / path.parent.name / "sweep.json")
        pair = next((pair for pair in sweep.pairs if pair.batch_size == _RESULTS_BATCH), None)
        if pair is None or pair.plain.peak_B is None or pair.planned.peak_B is None:
            raise InputError(f"the sweep of {largest.model} has no batch size {_RESULTS_BATCH} that trained both ways")
        memory = f"{format_bytes(pair.plain.peak_B)} | {format_bytes(pair.planned.peak_B)}"
        equal = "equal" if pair.equal else "differ"
        rows.append(
            f"| {largest.model} | {format_bytes(largest.memory_limit_B)} | {eager} | {planned} | {memory} "
            f"| {spread(pair.ratios)} | {equal} |"
        )
    return "\n".join([*_RESULTS_HEAD, *rows])


_MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n)(?:(?!<!--).)*(<!-- end of table -->)", re.DOTALL)


def with_tables(text: str, reports: Path) -> str:
    """A page with every table between `<!-- table NAME -->` and `<!-- end of table -->` written anew."""
    tables = {
        "results": lambda: results_table(reports),
        "largest": lambda: limits_table(reports / "largest"),
        "sweep": lambda: sweep_table(reports / "sweep"),
        "budgets": lambda: budgets_table(reports / "budgets"),
        "process": lambda: process_table(reports / "process"),
        "swap": lambda: swap_table(reports / "swap"),
        "capture": lambda: cost_table(reports / "bench"),
        "startup": lambda: startup_table(reports / "startup"),
        "deeper": lambda: deeper_table(reports / "deeper"),
        "compile": lambda: compile_table(reports / "compile"),
        "compile-answers": lambda: compile_answers(reports / "compile"),
        "parallel": lambda: parallel_table(reports / "parallel"),
        "fit-kinds": lambda: calibration_kinds(reports / "calibration"),
        "fit-steps": lambda: calibration_steps(reports / "calibration"),
        "fit-public": lambda: public_table(reports / "fit"),
        "fit-public-errors": lambda: public_errors(reports / "fit"),
        "fit-plans": lambda: plans_table(reports / "fit"),
        "fit-longest": lambda: longest_table(reports / "fit"),
    }

    def written(found: re.Match[str]) -> str:
        if found["name"] not in tables:
            raise InputError(f"there is no table {shown(found['name'])}: write one of {', '.join(tables)}")
        return f"{found[1]}{tables[found['name']]()}\n{found[3]}"

    return _MARKED.sub(written, text)
