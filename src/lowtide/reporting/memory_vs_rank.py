"""profiler_plots_memory_vs_rank.png: whose bytes memory is made of, module by module, with the limits drawn in."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lowtide.records.profile import Profile
from lowtide.reporting.module_groups import REST, largest_kinds, module_kind
from lowtide.reporting.rank_axis import bins, edges, mark_phases, point_at_peak
from lowtide.reporting.style import FAINT, INK, KIND_COLOURS, LIMIT_COLOUR, WORKSPACE_COLOUR, Scale, picture, shorten
from lowtide.units import format_bytes

_BINS = 700
_KINDS = 8
_NEAR = 1.6
"""A limit up to this many times the peak is drawn to scale; beyond, it would squash the curve and is only named."""


def draw_memory_vs_rank(profile: Profile, path: Path, *, budget: int | None = None) -> None:
    """What is made and freed within a step, by the module that makes it; what is always there lies below the axis."""
    spans = bins(len(profile.ops), _BINS)
    shown = [max(span, key=lambda r: profile.ops[r].peak_mem_B) for span in spans]
    limits = {"device memory": profile.device_memory_B}
    if budget is not None:
        limits["budget"] = budget
    near = {name: size for name, size in limits.items() if size <= profile.peak_B * _NEAR}
    top = max([profile.peak_B, *near.values()])
    scale = Scale.of_bytes(top)
    floor = profile.resident_B / scale.factor
    layers = _bytes_by_kind(profile)
    stack = [[alive[r] / scale.factor for r in [*shown, shown[-1]]] for alive in layers.values()]
    stack.append([profile.ops[r].workspace_B / scale.factor for r in [*shown, shown[-1]]])
    colours = ["#C4C4C4" if kind == REST else KIND_COLOURS[k] for k, kind in enumerate(layers)]
    with picture(path, profile, "which modules fill the memory", (14, 7)) as figure:
        axes = figure.add_subplot()
        level = [floor] * len(stack[0])
        peak = profile.peak_rank
        names = [f"{shorten(kind, 44)}: {format_bytes(alive[peak])}" for kind, alive in layers.items()]
        names.append(f"workspace of the op that runs: {format_bytes(profile.ops[peak].workspace_B)}")
        for name, sizes, colour in zip(names, stack, [*colours, WORKSPACE_COLOUR], strict=True):
            above = [low + size for low, size in zip(level, sizes, strict=True)]
            axes.fill_between(edges(spans), level, above, step="post", color=colour, linewidth=0, label=name)
            level = above
        axes.step(edges(spans), level, where="post", color=INK, linewidth=0.9)
        room = max(top - profile.resident_B, 1) / scale.factor
        axes.set_ylim(max(0.0, floor - 0.06 * room), floor + 1.32 * room)
        axes.axhline(floor, color=FAINT, linewidth=1)
        mark_phases(axes, profile)
        point_at_peak(axes, profile, scale)
        handles, labels = axes.get_legend_handles_labels()
        title = "made by, with bytes at the peak"
        by_module = figure.legend(
            handles[::-1], labels[::-1], title=title, alignment="left", loc="outside right upper", fontsize=9.5
        )
        by_module.get_title().set_fontweight("bold")
        resident = f"always there, below this line: {format_bytes(profile.resident_B)}"
        lines = [axes.axhline(floor, color=FAINT, linewidth=1, label=resident)]
        lines += _draw_limits(axes, limits, near, scale, profile)
        axes.legend(handles=lines, loc="upper center", ncols=3, bbox_to_anchor=(0.5, -0.1))
        axes.set_ylabel(f"device memory ({scale.unit})")


def _bytes_by_kind(profile: Profile) -> dict[str, list[int]]:
    """Bytes alive while each op runs, residents left out, by the kind of module that makes them; most bytes first."""
    made = [
        (profile.ops[s.created].module, s.bytes, s.created, s.last)
        for s in profile.storages
        if not s.resident and s.created is not None and s.last is not None
    ]
    kinds = largest_kinds(((module, size * (last + 1 - created)) for module, size, created, last in made), _KINDS)
    change = {kind: [0] * (len(profile.ops) + 1) for kind in kinds}
    for module, size, created, last in made:
        row = change.get(module_kind(module), change.get(REST))
        assert row is not None
        row[created] += size
        row[last + 1] -= size
    for row in change.values():
        for rank in range(1, len(row)):
            row[rank] += row[rank - 1]
    return change


def _draw_limits(
    axes: Axes, limits: dict[str, int], near: dict[str, int], scale: Scale, profile: Profile
) -> list[Line2D]:
    """Limits within reach of the curve as lines; the others as a note in the legend."""
    drawn = []
    for name, size in limits.items():
        label = f"{name}: {format_bytes(size)}"
        if name in near:
            style = "-" if name == "budget" else "--"
            at = size / scale.factor
            drawn.append(axes.axhline(at, color=LIMIT_COLOUR, linewidth=1.4, linestyle=style, label=label, zorder=6))
        else:
            above = f"{label}, above this picture ({size / profile.peak_B:.1f}x the peak)"
            drawn += axes.plot([], [], color=LIMIT_COLOUR, marker="^", linestyle="none", label=above)
    return drawn
