"""A plan as a person would want it: what is kept, recomputed, packed and swapped, per module, and what that costs."""

from dataclasses import dataclass

from lowtide.forecast import Forecast
from lowtide.records.step_plan import Act, StepPlan
from lowtide.reporting.module_groups import module_groups
from lowtide.units import format_bytes, format_ms

_GROUPS = 24


@dataclass
class _Row:
    """One group of modules."""

    kept: int = 0
    recomputed: int = 0
    packed: int = 0
    swapped: int = 0
    recompute_ms: float = 0.0
    pack_ms: float = 0.0

    def cells(self) -> list[str]:
        return [
            *(format_bytes(size) if size else "-" for size in (self.kept, self.recomputed, self.packed, self.swapped)),
            *(format_ms(ms) if ms else "-" for ms in (self.recompute_ms, self.pack_ms)),
        ]


def explain(plan: StepPlan, *, measured_peak: int | None = None, addresses: str | None = None) -> str:
    """All of it as text; `addresses` says where the tensors of a step lie."""
    forecast = Forecast(plan)
    head = [
        f"{plan.step.model}, {plan.step.optimizer}, {'; '.join(plan.step.batch)}",
        f"budget            {format_bytes(plan.budget)} ({plan.budget:,} bytes)",
        f"peak, as captured {format_bytes(plan.unplanned_peak)} ({plan.unplanned_peak:,} bytes)",
    ]
    lie = [] if addresses is None else [f"tensors lie       {addresses}"]
    if not plan.rewritten:
        rest = "Everything fits as it is: nothing is rewritten, the step costs nothing extra."
        return "\n".join([*head, *lie, rest]) + "\n"
    head.append(f"peak, predicted   {format_bytes(forecast.peak)} ({forecast.peak:,} bytes)")
    if measured_peak is not None:
        head.append(
            f"peak, measured    {format_bytes(measured_peak)} ({measured_peak:,} bytes), "
            f"{measured_peak / forecast.peak - 1:+.2%} of the prediction"
        )
    base = plan.base_time or 1.0
    waits = "swapping" if forecast.swapped_bytes or not forecast.swap_time else "waiting for collectives"
    head += [
        f"time, predicted   {forecast.overhead:+.2%}: recomputing {plan.recompute_time / base:.2%}, "
        f"packing {plan.pack_time / base:.2%}, {waits} {forecast.swap_time / base:.2%}; "
        f"no schedule takes less than {plan.bound:+.2%}",
        f"policy            {plan.policy}, {plan.seconds:.1f} s ({plan.note})",
        f"updates           {_updates(plan)}",
        *([f"signs             {_signs(plan)}"] if plan.signs else []),
        *([f"swaps             {_swaps(forecast)}"] if forecast.swapped_bytes else []),
        *lie,
        "",
    ]
    at = plan.exact.ops[plan.exact_order[forecast.timeline.peak_step]]
    largest = [f"{plan.exact.storages[s].name or s} {format_bytes(size)}" for s, size in forecast.timeline.alive[:4]]
    tail = [
        "",
        f"At the predicted peak ({at.name}, step {forecast.timeline.peak_step} of {len(plan.exact_order)}): residents "
        f"{format_bytes(forecast.timeline.resident)}, workspace {format_bytes(forecast.timeline.workspace)}, "
        f"alive {', '.join(largest)}" + (", ..." if len(forecast.timeline.alive) > len(largest) else ""),
    ]
    return "\n".join([*head, *_table(plan), *tail]) + "\n"


def _updates(plan: StepPlan) -> str:
    updates = [o for o in plan.order if plan.actions[o].act is Act.UPDATE]
    if len(updates) < 2:
        return "all parameters at the end, in one optimizer.step()"
    count = sum(len(plan.actions[o].ranks) for o in updates)
    return f"{count} parameters in {len(updates)} parts, each as soon as its gradients are complete"


def _signs(plan: StepPlan) -> str:
    bits, results = (sum(plan.problem.storages[s].bytes for s in each) for each in zip(*plan.signs, strict=True))
    return f"{len(plan.signs)} ReLU results kept as signs, in {format_bytes(bits)} instead of {format_bytes(results)}"


def _swaps(forecast: Forecast) -> str:
    count = sum(fate.what == "swapped" for fate in forecast.plan.fates)
    return f"{count} activations leave the device, at most {format_bytes(forecast.swapped_bytes)} at once"


def _table(plan: StepPlan) -> list[str]:
    """Bytes and times by module; activations count where they are made, runs where their op belongs."""
    modules = [record.module for record in plan.actions]
    group = dict(zip(range(len(modules)), module_groups(modules, _GROUPS), strict=True))
    rows: dict[str, _Row] = {}
    for fate in plan.fates:
        row = rows.setdefault(group[fate.op], _Row())
        setattr(row, fate.what, getattr(row, fate.what) + plan.problem.storages[fate.storage].bytes)
    for o, count in plan.runs.items():
        row = rows.setdefault(group[o], _Row())
        if plan.actions[o].act in (Act.PACK, Act.UNPACK):
            row.pack_ms += count * plan.problem.times[o]
        elif not plan.problem.ops[o].optional:
            row.recompute_ms += (count - 1) * plan.problem.times[o]
    results = sum(plan.problem.storages[result].bytes for _, result in plan.signs)
    for bits, result in plan.signs:
        row = rows.setdefault(group[plan.problem.producers[bits][0]], _Row())
        row.pack_ms += plan.signs_time * plan.problem.storages[result].bytes / results
    total = _Row()
    for row in rows.values():
        for name in vars(row):
            setattr(total, name, getattr(total, name) + getattr(row, name))
    shown = {name: row for name, row in rows.items() if row != _Row()}
    lines = [["module", "kept", "recomputed", "packed", "swapped", "recompute time", "pack time"]]
    lines += [[name or "(root)", *row.cells()] for name, row in shown.items()]
    lines.append(["all", *total.cells()])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
