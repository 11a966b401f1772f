"""profiler_plots_node_peak_memory.png: the highest point of memory while each op runs, and what ops take themselves."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.bars import horizontal_bars, nothing_to_show
from lowtide.reporting.module_groups import module_groups
from lowtide.reporting.rank_axis import bar_widths, bins, edges, mark_phases, phase_patches, point_at_peak
from lowtide.reporting.style import FAINT, PHASE_COLOURS, WORKSPACE_COLOUR, Scale, op_label, picture, rows_of, shorten
from lowtide.units import format_bytes

_BINS, _ROWS = 300, 18
_OUTPUT_COLOUR = "#56B4E9"


def draw_node_memory(profile: Profile, path: Path) -> None:
    """Peaks along the step, the ops that take most bytes themselves, and the highest peak in each part of the model."""
    with picture(path, profile, "peak memory of the ops", (15, 11)) as figure:
        upper, lower = rows_of(figure, 1, 1.15)
        _along_the_step(upper.add_subplot(), profile)
        hungriest, parts = lower.subplots(1, 2)
        _hungriest(hungriest, profile)
        _by_part(parts, profile)


def _along_the_step(axes: Axes, profile: Profile) -> None:
    spans = bins(len(profile.ops), _BINS)
    highest = [max((profile.ops[r] for r in span), key=lambda op: op.peak_mem_B) for span in spans]
    scale = Scale.of_bytes(profile.peak_B)
    axes.bar(
        edges(spans)[:-1],
        [op.peak_mem_B / scale.factor for op in highest],
        width=bar_widths(spans),
        align="edge",
        color=[PHASE_COLOURS[op.phase] for op in highest],
    )
    axes.axhline(profile.resident_B / scale.factor, color="white", linewidth=1.4, linestyle=":")
    axes.set_ylim(0, profile.peak_B / scale.factor * 1.32 or 1)
    mark_phases(axes, profile)
    point_at_peak(axes, profile, scale)
    longest = max(len(span) for span in spans)
    of = "each op" if longest == 1 else f"each {longest} ops in a row"
    axes.set_title(f"Highest point during {of} (dotted: resident, {format_bytes(profile.resident_B)})", pad=22)
    axes.set_ylabel(scale.unit)


def _hungriest(axes: Axes, profile: Profile) -> None:
    """The ops that take most bytes themselves; that is what differs between neighbours."""
    rows = sorted(profile.ops, key=lambda op: -(op.output_B + op.workspace_B))[:_ROWS]
    rows = [op for op in rows if op.output_B + op.workspace_B]
    if not rows:
        nothing_to_show(axes, "no op of this step makes a storage or takes a workspace")
        return
    scale = Scale.of_bytes(rows[0].output_B + rows[0].workspace_B)
    stacks = [
        ([op.output_B / scale.factor for op in rows], _OUTPUT_COLOUR),
        ([op.workspace_B / scale.factor for op in rows], WORKSPACE_COLOUR),
    ]
    texts = [format_bytes(op.output_B + op.workspace_B) for op in rows]
    horizontal_bars(axes, [op_label(op.name, op.module) for op in rows], stacks, texts)
    axes.set_title("Ops that take most bytes themselves")
    axes.set_xlabel(scale.unit)
    handles = [Patch(color=_OUTPUT_COLOUR, label="output"), Patch(color=WORKSPACE_COLOUR, label="workspace")]
    axes.legend(handles=handles, loc="lower right", frameon=True)


def _by_part(axes: Axes, profile: Profile) -> None:
    """The highest peak of each part in each phase."""
    peaks: dict[str, dict[Phase, int]] = {}
    for op, group in zip(profile.ops, module_groups([op.module for op in profile.ops], _ROWS), strict=True):
        row = peaks.setdefault(group, {})
        row[op.phase] = max(row.get(op.phase, 0), op.peak_mem_B)
    scale = Scale.of_bytes(profile.peak_B)
    for place, row in enumerate(peaks.values()):
        values = [size / scale.factor for size in row.values()]
        axes.hlines(place, min(values), max(values), color="#CCCCCC", linewidth=2, zorder=2)
        axes.scatter(values, [place] * len(values), c=[PHASE_COLOURS[phase] for phase in row], s=46, zorder=3)
    axes.axvline(profile.resident_B / scale.factor, color=FAINT, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(peaks)), [shorten(group, 40) or "(no module)" for group in peaks], size=8.5)
    axes.set_ylim(max(len(peaks), 8) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_title("Highest point in each part of the model")
    axes.set_xlabel(scale.unit)
    axes.legend(handles=phase_patches(profile), loc="best", frameon=True)
