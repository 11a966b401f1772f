"""lanes.png: what runs on compute, on the link and on the copy lanes over one step, as planned."""

from collections.abc import Collection
from pathlib import Path

from matplotlib.patches import Patch

from lowtide.forecast import Forecast
from lowtide.planning.lanes import clock
from lowtide.planning.problem import COMPUTE
from lowtide.records.step_plan import Act, StepPlan
from lowtide.reporting.style import INK, Scale, framed, shorten
from lowtide.units import format_bytes

_WORDS = {"link": "communication"}
WAITS = "compute waits"
_COLOURS = {
    "compute": "#56B4E9",
    "recompute": "#D55E00",
    "update": "#009E73",
    "collective, nothing beside it": "#CC79A7",
    "collective, beside compute": "#E69F00",
    "its start and its end": "#A6761D",
    "copy": "#8A5CC2",
    WAITS: "#BDBDBD",
}
_HEIGHT = 0.7


def draw_lanes(plan: StepPlan, collectives: Collection[str], name: str, path: Path) -> None:
    """`collectives` are names of ops."""
    forecast = Forecast(plan)
    ran, scale = clock(plan.exact, plan.exact_order), Scale.of_ms(forecast.timeline.time)
    rows = [COMPUTE, "link", *(lane for lane in plan.exact.lanes if lane != "link")]
    spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
    seen: set[int] = set()
    steps = zip(plan.order, plan.exact_order, ran.starts, ran.ends, ran.waits, strict=True)
    for o, exact, start, end, wait in steps:
        if wait:
            spans.setdefault((COMPUTE, WAITS), []).append(((start - wait) / scale.factor, wait / scale.factor))
        kind = _kind(plan, o, collectives, again=o in seen)
        seen.add(o)
        lane = plan.exact.ops[exact].lane
        spans.setdefault((lane, kind), []).append((start / scale.factor, (end - start) / scale.factor))
    lines = (
        f"{shorten('; '.join(plan.step.batch), 120)}; optimizer: {shorten(plan.step.optimizer, 60)}",
        f"predicted from measured ops; {plan.step.device}, torch {plan.step.torch}; predicted peak "
        f"{format_bytes(forecast.peak)}, compute waits {_share(forecast):.1%} of the step",
    )
    with framed(
        path, f"{shorten(name, 40)}: the lanes of one planned step", lines, (12, 1.9 + 0.55 * len(rows))
    ) as figure:
        axes = figure.add_subplot()
        for (lane, kind), bars in spans.items():
            low = -rows.index(lane) - _HEIGHT / 2
            axes.broken_barh(bars, (low, _HEIGHT), color=_COLOURS[kind], linewidth=0)
        axes.set_yticks([-k for k in range(len(rows))], [_WORDS.get(lane, lane) for lane in rows])
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.set_xlim(0, forecast.timeline.time / scale.factor)
        axes.set_xlabel(f"time ({scale.unit})")
        axes.grid(visible=False, axis="y")
        shown = [kind for kind in _COLOURS if any(kind == other for _, other in spans)]
        handles = [Patch(color=_COLOURS[kind], label=kind) for kind in shown]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)


def _share(forecast: Forecast) -> float:
    return forecast.timeline.waited / forecast.timeline.time if forecast.timeline.time else 0.0


def _kind(plan: StepPlan, o: int, collectives: Collection[str], *, again: bool) -> str:
    match plan.actions[o].act:
        case Act.UPDATE:
            return "update"
        case Act.START | Act.BESIDE if plan.problem.ops[o].lane != COMPUTE:
            return "collective, beside compute"
        case Act.START | Act.BESIDE | Act.WAIT:
            return "its start and its end"
        case Act.OFFLOAD | Act.PREFETCH | Act.RELEASE:
            return "copy"
        case Act.RUN if plan.problem.ops[o].name in collectives:
            return "collective, nothing beside it"
        case Act.RUN if not again:
            return "compute"
        case _:
            return "recompute"
