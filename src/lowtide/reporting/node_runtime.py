"""profiler_plots_node_runtime.png: where the time of the step goes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from lowtide.records.profile import OpRecord, Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.bars import horizontal_bars
from lowtide.reporting.module_groups import module_groups
from lowtide.reporting.rank_axis import bar_widths, bins, edges, mark_phases, phase_of_bin, phase_patches
from lowtide.reporting.style import PHASE_COLOURS, Scale, op_label, picture, rows_of, shorten
from lowtide.units import format_ms

_BINS, _ROWS = 300, 18


def draw_node_runtime(profile: Profile, path: Path) -> None:
    """Time along the step, the slowest ops, and the time summed by kind of op and by part of the model."""
    with picture(path, profile, "time of the ops", (15, 12.5)) as figure:
        upper, middle, lower = rows_of(figure, 1, 1.35, 1.35)
        _along_the_step(upper.add_subplot(), profile)
        slowest, kinds = middle.subplots(1, 2)
        _slowest(slowest, profile)
        _by_group(kinds, profile.ops, _largest_groups(profile.ops, [op.op for op in profile.ops]), by_time=True)
        kinds.set_title("By kind of op")
        parts = lower.add_subplot()
        _by_group(parts, profile.ops, module_groups([op.module for op in profile.ops], _ROWS), by_time=False)
        parts.set_title("By part of the model, in the order of execution")
        parts.legend(handles=phase_patches(profile), loc="lower right", ncols=3)


def _along_the_step(axes: Axes, profile: Profile) -> None:
    spans = bins(len(profile.ops), _BINS)
    sums = [sum(profile.ops[r].runtime_ms for r in span) for span in spans]
    scale = Scale.of_ms(max(sums))
    axes.bar(
        edges(spans)[:-1],
        [time / scale.factor for time in sums],
        width=bar_widths(spans),
        align="edge",
        color=[PHASE_COLOURS[phase_of_bin(profile.ops, span)] for span in spans],
    )
    axes.set_ylim(0, max(sums) / scale.factor * 1.08 or 1)
    mark_phases(axes, profile)
    longest = max(len(span) for span in spans)
    total = sum(op.runtime_ms for op in profile.ops)
    of = "each op" if longest == 1 else f"each {longest} ops in a row"
    sums_to = f"all {len(profile.ops):,} ops {format_ms(total)}, a plain step {format_ms(profile.step_ms)}"
    axes.set_title(f"Time of {of}; {sums_to}", pad=22)
    axes.set_ylabel(scale.unit)


def _slowest(axes: Axes, profile: Profile) -> None:
    slowest = sorted(profile.ops, key=lambda op: -op.runtime_ms)[:_ROWS]
    total = sum(op.runtime_ms for op in profile.ops)
    scale = Scale.of_ms(slowest[0].runtime_ms)
    labels = [op_label(op.name, op.module) for op in slowest]
    lengths = [op.runtime_ms / scale.factor for op in slowest]
    texts = [f"{format_ms(op.runtime_ms)}  ±{format_ms(op.runtime_spread_ms / 2)}" for op in slowest]
    horizontal_bars(axes, labels, [(lengths, [PHASE_COLOURS[op.phase] for op in slowest])], texts)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.08)
    share = sum(op.runtime_ms for op in slowest) / total if total else 0
    axes.set_title(f"The {len(slowest)} slowest ops ({share:.0%} of the time; ± half the spread)")
    axes.set_xlabel(scale.unit)


def _largest_groups(ops: Sequence[OpRecord], groups: Sequence[str]) -> list[str]:
    """The groups; those beyond the readable number are one group."""
    times: dict[str, float] = {}
    for op, group in zip(ops, groups, strict=True):
        times[group] = times.get(group, 0.0) + op.runtime_ms
    rest = set(sorted(times, key=lambda group: -times[group])[_ROWS - 1 :]) if len(times) > _ROWS else set()
    return [f"{len(rest)} other kinds" if group in rest else group for group in groups]


def _by_group(axes: Axes, ops: Sequence[OpRecord], groups: Sequence[str], *, by_time: bool) -> None:
    """Bars of summed time, phases end to end, in the order of execution or of time."""
    times: dict[str, dict[Phase, float]] = {}
    counts: dict[str, int] = {}
    for op, group in zip(ops, groups, strict=True):
        row = times.setdefault(group, dict.fromkeys(Phase, 0.0))
        row[op.phase] += op.runtime_ms
        counts[group] = counts.get(group, 0) + 1
    sums = {group: sum(row.values()) for group, row in times.items()}
    order = sorted(sums, key=lambda group: -sums[group]) if by_time else list(sums)
    total, scale = sum(sums.values()), Scale.of_ms(max(sums.values()))
    stacks = [([times[group][phase] / scale.factor for group in order], PHASE_COLOURS[phase]) for phase in Phase]
    texts = [
        f"{format_ms(sums[g])}  {sums[g] / total if total else 0:.1%}  {counts[g]} op{'s' * (counts[g] > 1)}"
        for g in order
    ]
    horizontal_bars(axes, [shorten(group, 44) or "(no module)" for group in order], stacks, texts)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.12)
    axes.set_xlabel(scale.unit)
