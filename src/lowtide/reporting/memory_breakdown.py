"""peak_memory_breakdown.png: memory over the step stacked by role, and what the peak is made of."""

from pathlib import Path

from lowtide.records.profile import Profile
from lowtide.reporting.bars import horizontal_bars
from lowtide.reporting.rank_axis import bins, edges, mark_phases, point_at_peak
from lowtide.reporting.style import ROLE_COLOURS, ROLE_WORDS, WORKSPACE_COLOUR, Scale, picture
from lowtide.units import format_bytes

_BINS = 700


def peak_parts(profile: Profile) -> dict[str, int]:
    """What the peak is made of, by role, workspace last; the parts add up to the peak."""
    rank = profile.peak_rank
    alive = profile.role_bytes()
    parts = {word: alive[role][rank] for role, word in ROLE_WORDS.items()}
    return {**parts, "workspace": profile.ops[rank].workspace_B}


def draw_memory_breakdown(profile: Profile, path: Path) -> None:
    """Bytes of each role while each op runs; a bin of several ops shows its highest instant, not a mixture."""
    spans = bins(len(profile.ops), _BINS)
    shown = [max(span, key=lambda r: profile.ops[r].peak_mem_B) for span in spans]
    alive = profile.role_bytes()
    scale = Scale.of_bytes(profile.peak_B)
    layers = [[alive[role][r] / scale.factor for r in shown] for role in ROLE_WORDS]
    layers.append([profile.ops[r].workspace_B / scale.factor for r in shown])
    colours = [*(ROLE_COLOURS[role] for role in ROLE_WORDS), WORKSPACE_COLOUR]
    parts = peak_parts(profile)
    with picture(path, profile, "what fills the memory", (14, 7.4)) as figure:
        axes, share = figure.subplots(2, 1, height_ratios=[5, 1.65])
        axes.stackplot(
            edges(spans), [[*layer, layer[-1]] for layer in layers], labels=list(parts), colors=colours, step="post"
        )
        axes.set_ylim(0, profile.peak_B / scale.factor * 1.3 or 1)
        axes.set_ylabel(f"device memory ({scale.unit})")
        mark_phases(axes, profile)
        point_at_peak(axes, profile, scale)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=10)
        share.set_title("At the peak")
        texts = [f"{format_bytes(size)}  ({size / profile.peak_B:.1%})" for size in parts.values()]
        lengths = [size / scale.factor for size in parts.values()]
        horizontal_bars(share, list(parts), [(lengths, colours)], texts)
        share.set_ylim(len(parts) - 0.4, -0.6)
        share.set_xlabel(scale.unit)
