"""profiler_plots_activation_memory_size.png: how many bytes each activation holds from forward to backward."""

from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes

from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Role
from lowtide.reporting.bars import horizontal_bars, nothing_to_show
from lowtide.reporting.module_groups import module_groups
from lowtide.reporting.rank_axis import bar_widths, bins
from lowtide.reporting.style import INK, ROLE_COLOURS, Scale, op_label, picture, rows_of, shorten
from lowtide.units import format_bytes

_BINS, _ROWS = 250, 22
_COLOUR = ROLE_COLOURS[Role.ACTIVATION]


def draw_activation_size(profile: Profile, path: Path) -> None:
    """Activations in the order of creation with their running sum, the largest, and the sum by part of the model."""
    with picture(path, profile, "bytes of the activations", (15, 11)) as figure:
        if not profile.activations:
            nothing_to_show(figure.add_subplot(), "this step keeps no activation from forward to backward")
            return
        upper, lower = rows_of(figure, 1, 1.3)
        _in_order(upper.add_subplot(), profile)
        largest, parts = lower.subplots(1, 2)
        _largest(largest, profile)
        _by_part(parts, profile)


def _in_order(axes: Axes, profile: Profile) -> None:
    sizes = [a.memory_size_B for a in profile.activations]
    spans = bins(len(sizes), _BINS)
    sums = [sum(sizes[i] for i in span) for span in spans]
    scale = Scale.of_bytes(max(sums))
    axes.bar(
        [span.start for span in spans],
        [size / scale.factor for size in sums],
        width=bar_widths(spans),
        align="edge",
        color=_COLOUR,
        edgecolor="white",
        linewidth=0.3,
    )
    longest = max(len(span) for span in spans)
    of = "each activation" if longest == 1 else f"each {longest} activations in a row"
    axes.set_title(f"Bytes of {of} (line: running sum, right axis); {len(sizes):,} hold {format_bytes(sum(sizes))}")
    axes.set_ylabel(scale.unit)
    axes.set_xlabel("activations, in the order of creation")
    axes.set_xlim(0, len(sizes))
    total = Scale.of_bytes(sum(sizes))
    running = [size / total.factor for size in accumulate(sizes, initial=0)]
    right = axes.twinx()
    right.plot(range(len(running)), running, color=INK, linewidth=1.4)
    right.set_ylim(0, running[-1] * 1.08 or 1)
    right.set_ylabel(f"running sum ({total.unit})")
    right.grid(visible=False)


def _largest(axes: Axes, profile: Profile) -> None:
    rows = sorted(profile.activations, key=lambda a: -a.memory_size_B)[:_ROWS]
    scale = Scale.of_bytes(rows[0].memory_size_B)
    lengths = [a.memory_size_B / scale.factor for a in rows]
    texts = [format_bytes(a.memory_size_B) for a in rows]
    horizontal_bars(axes, [op_label(a.name, a.module) for a in rows], [(lengths, _COLOUR)], texts)
    total = sum(a.memory_size_B for a in profile.activations)
    share = sum(a.memory_size_B for a in rows) / total if total else 0
    axes.set_title(f"The {len(rows)} largest ({share:.0%} of the bytes)")
    axes.set_xlabel(scale.unit)


def _by_part(axes: Axes, profile: Profile) -> None:
    sizes: dict[str, list[int]] = {}
    groups = module_groups([a.module for a in profile.activations], _ROWS)
    for a, group in zip(profile.activations, groups, strict=True):
        sizes.setdefault(group, []).append(a.memory_size_B)
    scale = Scale.of_bytes(max(sum(row) for row in sizes.values()))
    lengths = [sum(row) / scale.factor for row in sizes.values()]
    texts = [f"{format_bytes(sum(row))}  in {len(row)}" for row in sizes.values()]
    horizontal_bars(axes, [shorten(group, 40) or "(no module)" for group in sizes], [(lengths, _COLOUR)], texts)
    axes.set_title("By part of the model, in the order of execution")
    axes.set_xlabel(scale.unit)
