"""memory.png: device memory over the time of one step, as captured and as planned, with the budget."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lowtide.forecast import Forecast
from lowtide.planning.lanes import clock
from lowtide.planning.problem import COMPUTE, Problem
from lowtide.planning.simulate import simulate
from lowtide.records.step_plan import StepPlan
from lowtide.reporting.style import INK, LIMIT_COLOUR, Scale, framed, shorten
from lowtide.units import format_bytes

_RESIDENT, _BEFORE, _AFTER = "#C4C4C4", "#0072B2", "#009E73"
_RECOMPUTE, _PACK, _SWAP = "#D55E00", "#CC79A7", "#8A5CC2"
_PARTS = {"start": 0, "beside": 1, "wait": 2}
_COLOURS = {"pack": _PACK, "unpack": _PACK, "offload": _SWAP, "prefetch": _SWAP}


def draw_step_memory(plan: StepPlan, name: str, path: Path) -> None:
    """Both curves by the simulator, from the measured times and bytes that the plan was made from."""
    step, forecast = plan.step, Forecast(plan)
    lines = (
        f"{shorten('; '.join(step.batch), 120)}; optimizer: {shorten(step.optimizer, 60)}",
        f"predicted from measured ops; {step.device}, torch {step.torch}; policy {plan.policy}, "
        f"predicted overhead {forecast.overhead:+.1%}",
    )
    with framed(path, f"{shorten(name, 40)}: memory over one step", lines, (12, 5.6)) as figure:
        axes = figure.add_subplot()
        bytes_, time = Scale.of_bytes(plan.unplanned_peak), Scale.of_ms(forecast.timeline.time)
        captured = as_captured(plan)
        _curve(axes, captured, captured.program, _BEFORE, bytes_, time)
        if plan.rewritten:
            _curve(axes, plan.exact, plan.exact_order, _AFTER, bytes_, time, filled=True)
            _extra_runs(axes, plan, time)
        axes.axhspan(0, forecast.timeline.resident / bytes_.factor, color=_RESIDENT, zorder=3)
        axes.axhline(plan.budget / bytes_.factor, color=LIMIT_COLOUR, linewidth=1.4, linestyle="--")
        axes.set_ylim(0, 1.06 * max(plan.unplanned_peak, plan.budget) / bytes_.factor)
        axes.set_xlim(0, None)
        axes.set_xlabel(f"time ({time.unit})")
        axes.set_ylabel(bytes_.unit)
        axes.legend(handles=_legend(forecast), loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)


def as_captured(plan: StepPlan) -> Problem:
    """The planned problem with the parameters moving at the end, and collectives waited for at once, as in the captured
    step: a reduction stands where it starts, a gather where it is waited for."""
    ops, actions = plan.problem.ops, plan.actions
    starts = {actions[o].ranks: o for o, op in enumerate(ops) if actions[o].act == "start" and op.lane == COMPUTE}
    waits = {actions[o].ranks: o for o in range(len(ops)) if actions[o].act == "wait"}

    def place(o: int) -> tuple[bool, bool, int, int]:
        own = starts.get(actions[o].ranks, waits.get(actions[o].ranks, o)) if actions[o].act in _PARTS else o
        return ops[o].optional, actions[o].act == "update", own, _PARTS.get(actions[o].act, 0)

    in_order = sorted(range(len(ops)), key=place)
    return replace(plan.problem, ops=tuple(ops[o] for o in in_order))


def _curve(
    axes: Axes,
    problem: Problem,
    order: Sequence[int],
    colour: str,
    bytes_: Scale,
    time: Scale,
    *,
    filled: bool = False,
) -> None:
    ends = [t / time.factor for t in _ends(problem, order)]
    live = [size / bytes_.factor for size in simulate(problem, order).live]
    begins = [0.0, *ends]
    axes.stairs(live, begins, color=colour, linewidth=1.3, baseline=None, zorder=4)
    if filled:
        axes.stairs(live, begins, color=colour, alpha=0.18, fill=True, linewidth=0, zorder=2)


def _ends(problem: Problem, order: Sequence[int]) -> list[float]:
    """When compute is done with each step; with one that only starts a copy, at once."""
    ran = clock(problem, order)
    ends = (end if problem.ops[o].lane == COMPUTE else 0.0 for o, end in zip(order, ran.ends, strict=True))
    return list(accumulate(ends, max))


def _extra_runs(axes: Axes, plan: StepPlan, time: Scale) -> None:
    """Along the bottom: when something is recomputed, packed or unpacked; above that, when copies are under way."""
    seen: set[int] = set()
    ran = clock(plan.problem, plan.order)
    for o, start, end in zip(plan.order, ran.starts, ran.ends, strict=True):
        colour = _COLOURS.get(plan.actions[o].act, _RECOMPUTE if o in seen else None)
        seen.add(o)
        if colour is not None:
            low = 0.03 if colour == _SWAP else 0.0
            span = (start / time.factor, end / time.factor)
            axes.axvspan(*span, ymin=low, ymax=low + 0.03, color=colour, linewidth=0.4, zorder=5)


def _legend(forecast: Forecast) -> list[Line2D | Patch]:
    plan = forecast.plan
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=_BEFORE, label=f"as captured: {format_bytes(plan.unplanned_peak)}")
    ]
    if plan.rewritten:
        handles.append(Line2D([], [], color=_AFTER, label=f"planned: {format_bytes(forecast.peak)}"))
    budget, resident = f"budget: {format_bytes(plan.budget)}", format_bytes(forecast.timeline.resident)
    handles += [
        Line2D([], [], color=LIMIT_COLOUR, linestyle="--", label=budget),
        Patch(color=_RESIDENT, label=f"always there: {resident}\n(parameters, state, batch)"),
    ]
    if plan.recompute_time:
        handles.append(Patch(color=_RECOMPUTE, label="recomputing (bottom edge)"))
    if plan.pack_time:
        handles.append(Patch(color=_PACK, label="packing, unpacking"))
    if forecast.swapped_bytes:
        handles.append(Patch(color=_SWAP, label="copies out and back"))
    return handles
