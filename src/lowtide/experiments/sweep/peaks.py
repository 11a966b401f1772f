"""peak_memory_vs_batch_size.png: measured peaks without and with a plan, each bar by role."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lowtide.experiments.case import Case
from lowtide.experiments.sweep.record import Sweep
from lowtide.records.vocabulary import Role
from lowtide.reporting.style import FAINT, INK, ROLE_COLOURS, ROLE_WORDS, WORKSPACE_COLOUR, Scale, framed, shorten
from lowtide.units import format_bytes

_WIDTH = 0.38
_COLOURS = {**{role.value: colour for role, colour in ROLE_COLOURS.items()}, "workspace": WORKSPACE_COLOUR}
_WORDS = {**{role.value: word for role, word in ROLE_WORDS.items()}, "workspace": "workspace"}


def draw_peaks(found: Sweep, path: Path) -> None:
    """A pair of bars for each batch size, left without a plan and right with one."""
    title = f"{shorten(found.model, 40)}: peak memory against batch size"
    lines = head_lines(
        found, "left bar without a plan (eager), right bar with; heights: allocator's peak of a step; parts: op by op"
    )
    most = max((case.peak_B or 0 for pair in found.pairs for case in (pair.plain, pair.planned)), default=0)
    scale = Scale.of_bytes(most)
    top = most / scale.factor or 1.0
    with framed(path, title, lines, (max(8.0, 3.4 + 1.7 * len(found.pairs)), 6.4)) as figure:
        axes = figure.add_subplot()
        for place, pair in enumerate(found.pairs):
            heights = []
            for side, case in ((-1, pair.plain), (1, pair.planned)):
                heights.append(_bar(axes, place + side * (_WIDTH / 2 + 0.01), case, scale, top))
            if pair.reduction is not None:
                said = f"{-pair.reduction:+.0%}"
                axes.text(place, max(heights) + 0.075 * top, said, ha="center", size=12, weight="bold", color=INK)
        axes.set_xticks(range(len(found.pairs)), [str(pair.batch_size) for pair in found.pairs], size=10)
        axes.set_xlim(-0.6, len(found.pairs) - 0.4)
        axes.set_ylim(0, 1.18 * top)
        axes.set_xlabel("batch size")
        axes.set_ylabel(f"peak device memory ({scale.unit})")
        axes.grid(visible=False, axis="x")
        handles = [Patch(color=_COLOURS[role], label=_WORDS[role]) for role in reversed(_order())]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK, fontsize=10)


def _order() -> list[str]:
    """From the bottom up: what is always there first."""
    first = (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.OTHER, Role.GRADIENT, Role.ACTIVATION)
    return [*(role.value for role in first), "workspace"]


def _bar(axes: Axes, place: float, case: Case, scale: Scale, top: float) -> float:
    """One bar; its height. Where there is no peak, what happened stands there instead."""
    if case.peak_B is None:
        said = case.outcome.value
        axes.text(place, 0.02 * top, said, rotation=90, ha="center", va="bottom", size=10, color=FAINT)
        return 0.0
    height = case.peak_B / scale.factor
    sizes = {part.role: part.bytes / scale.factor for part in case.parts}
    bottom = 0.0
    for role in _order():
        size = sizes.get(role, 0.0)
        axes.bar(place, size, _WIDTH, bottom=bottom, color=_COLOURS[role])
        bottom += size
    if not sizes:
        axes.bar(place, height, _WIDTH, color=FAINT)
    axes.text(place, height + 0.015 * top, format_bytes(case.peak_B), ha="center", va="bottom", size=8, color=INK)
    return height


def head_lines(found: Sweep, second: str) -> tuple[str, str]:
    """Two lines of small print: what was trained on what, then `second`."""
    case = found.pairs[0].plain
    machine = found.machine
    return (
        f"budget {found.budget}; optimizer: {shorten(case.optimizer, 40)}; {shorten(machine.processor, 50)}, "
        f"{machine.cores} cores, torch {machine.torch}",
        second,
    )
