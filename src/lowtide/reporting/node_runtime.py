"""profiler_plots_node_runtime.png: where the time of the step goes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from lowtide.records.profile import OpRecord, Profile
from lowtide.records.words import Phase
from lowtide.reporting.bars import horizontal_bars
from lowtide.reporting.module_groups import module_groups
from lowtide.reporting.rank_axis import bins, edges, mark_phases, phase_of_bin, phase_patches
from lowtide.reporting.style import PHASE_COLOURS, Scale, picture, shorten
from lowtide.units import format_ms

_BINS, _ROWS = 300, 18


def draw_node_runtime(profile: Profile, path: Path) -> None:
    """Time along the step, the slowest ops, and the time summed by kind of op and by part of the model."""
    with picture(path, profile, "time of the ops", (15, 12.5)) as figure:
        grid = figure.add_gridspec(3, 2, height_ratios=[1, 1.35, 1.35])
        _along_the_step(figure.add_subplot(grid[0, :]), profile)
        _slowest(figure.add_subplot(grid[1, 0]), profile)
        kinds, parts = figure.add_subplot(grid[1, 1]), figure.add_subplot(grid[2, :])
        _by_group(kinds, profile.ops, [op.op for op in profile.ops], "By kind of op")
        groups = module_groups([op.module for op in profile.ops], _ROWS)
        _by_group(parts, profile.ops, groups, "By part of the model (forward, backward, optimizer)")
        parts.legend(handles=phase_patches(profile), loc="lower right", ncols=3)


def _along_the_step(axes: Axes, profile: Profile) -> None:
    spans = bins(len(profile.ops), _BINS)
    sums = [sum(profile.ops[r].runtime_ms for r in span) for span in spans]
    scale = Scale.of_ms(max(sums))
    borders = edges(spans)
    axes.bar(
        borders[:-1],
        [time / scale.factor for time in sums],
        width=[b - a for a, b in zip(borders, borders[1:], strict=False)],
        align="edge",
        color=[PHASE_COLOURS[phase_of_bin(profile.ops, span)] for span in spans],
    )
    mark_phases(axes, profile)
    longest = max(len(span) for span in spans)
    total = sum(op.runtime_ms for op in profile.ops)
    of = "each op" if longest == 1 else f"each {longest} ops in a row"
    axes.set_title(
        f"Time of {of}; all {len(profile.ops):,} ops {format_ms(total)}, a plain step {format_ms(profile.step_ms)}",
        pad=22,
    )
    axes.set_ylabel(scale.unit)


def _slowest(axes: Axes, profile: Profile) -> None:
    slowest = sorted(profile.ops, key=lambda op: -op.runtime_ms)[:_ROWS]
    total = sum(op.runtime_ms for op in profile.ops)
    scale = Scale.of_ms(slowest[0].runtime_ms)
    labels = [f"{shorten(op.module, 34)}  {shorten(op.name, 28)}" for op in slowest]
    lengths = [op.runtime_ms / scale.factor for op in slowest]
    texts = [f"{format_ms(op.runtime_ms)}  ±{format_ms(op.runtime_spread_ms / 2)}" for op in slowest]
    horizontal_bars(axes, labels, [(lengths, [PHASE_COLOURS[op.phase] for op in slowest])], texts)
    share = sum(op.runtime_ms for op in slowest) / total if total else 0
    axes.set_title(f"The {len(slowest)} slowest ops ({share:.0%} of the time), half the spread of the runs behind ±")
    axes.set_xlabel(scale.unit)


def _by_group(axes: Axes, ops: Sequence[OpRecord], groups: Sequence[str], title: str) -> None:
    """Bars of summed time, phases end to end, the largest groups; what is left out is summed in the last bar."""
    times: dict[str, dict[Phase, float]] = {}
    counts: dict[str, int] = {}
    for op, group in zip(ops, groups, strict=True):
        row = times.setdefault(group, dict.fromkeys(Phase, 0.0))
        row[op.phase] += op.runtime_ms
        counts[group] = counts.get(group, 0) + 1
    order = sorted(times, key=lambda group: -sum(times[group].values()))
    rest = order[_ROWS - 1 :] if len(order) > _ROWS else []
    shown = [group for group in order if group not in rest]
    rows = [(shorten(group, 44) or "(no module)", times[group], counts[group]) for group in shown]
    if rest:
        summed = {phase: sum(times[group][phase] for group in rest) for phase in Phase}
        rows.append((f"{len(rest)} others", summed, sum(counts[group] for group in rest)))
    total = sum(sum(row.values()) for row in times.values())
    scale = Scale.of_ms(max(sum(row.values()) for _, row, _ in rows))
    stacks = [([row[phase] / scale.factor for _, row, _ in rows], PHASE_COLOURS[phase]) for phase in Phase]
    texts = []
    for _, row, count in rows:
        time = sum(row.values())
        texts.append(f"{format_ms(time)}  {time / total if total else 0:.1%}  {count} {'op' if count == 1 else 'ops'}")
    horizontal_bars(axes, [label for label, _, _ in rows], stacks, texts)
    axes.set_title(title)
    axes.set_xlabel(scale.unit)
