"""profiler_plots_memory_vs_rank.png: memory against execution rank, with the phases and the limit."""

from pathlib import Path

from matplotlib.axes import Axes

from lowtide.records.profile import Profile
from lowtide.reporting.rank_axis import bins, edges, mark_phases, point_at_peak
from lowtide.reporting.style import FAINT, INK, LIMIT_COLOUR, WORKSPACE_COLOUR, Scale, picture
from lowtide.units import format_bytes

_BINS = 700
_NEAR = 1.6
"""A limit up to this many times the peak is drawn to scale; beyond, it would squash the curve and is only named."""


def draw_memory_vs_rank(profile: Profile, path: Path, *, budget: int | None = None) -> None:
    """The curve of bytes alive and of the highest point within each op; thousands of ops as an envelope."""
    spans = bins(len(profile.ops), _BINS)
    at = edges(spans)
    active = [max(profile.ops[r].active_mem_B for r in span) for span in spans]
    highest = [max(profile.ops[r].peak_mem_B for r in span) for span in spans]
    limits = {"device memory": profile.device_memory_B}
    if budget is not None:
        limits["budget"] = budget
    near = {name: size for name, size in limits.items() if size <= profile.peak_B * _NEAR}
    top = max([profile.peak_B, *near.values()])
    scale = Scale.of_bytes(top)
    with picture(path, profile, "memory over the step", (14, 7)) as figure:
        axes = figure.add_subplot()
        low = [size / scale.factor for size in [*active, active[-1]]]
        high = [size / scale.factor for size in [*highest, highest[-1]]]
        axes.fill_between(at, low, step="post", color="#56B4E9", alpha=0.45, label="alive")
        axes.fill_between(at, low, high, step="post", color=WORKSPACE_COLOUR, label="workspace of the op that runs")
        axes.step(at, high, where="post", color=INK, linewidth=0.9)
        resident = f"resident before and after the step: {format_bytes(profile.resident_B)}"
        axes.axhline(profile.resident_B / scale.factor, color=FAINT, linewidth=1, linestyle=":", label=resident)
        _draw_limits(axes, limits, near, scale, profile)
        axes.set_ylim(0, max(top, profile.peak_B * 1.12) / scale.factor * 1.15 or 1)
        axes.set_ylabel(f"device memory ({scale.unit})")
        mark_phases(axes, profile)
        point_at_peak(axes, profile, scale)
        axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, -0.1))


def _draw_limits(axes: Axes, limits: dict[str, int], near: dict[str, int], scale: Scale, profile: Profile) -> None:
    """Limits within reach of the curve as lines; the others as a note in the legend."""
    for name, size in limits.items():
        label = f"{name}: {format_bytes(size)}"
        if name in near:
            style = "-" if name == "budget" else "--"
            axes.axhline(size / scale.factor, color=LIMIT_COLOUR, linewidth=1.4, linestyle=style, label=label, zorder=6)
        else:
            above = f"{label}, above this picture ({size / profile.peak_B:.1f}x the peak)"
            axes.plot([], [], color=LIMIT_COLOUR, marker="^", linestyle="none", label=above)
