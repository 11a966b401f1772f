"""profiler_plots_activation_inactive_time.png: how long activations wait between forward and backward, and for what."""

from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import SubFigure
from matplotlib.ticker import NullFormatter

from lowtide.records.profile import ActivationRecord, Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.bars import horizontal_bars, nothing_to_show
from lowtide.reporting.module_groups import REST, largest_kinds, module_kind
from lowtide.reporting.style import FAINT, KIND_COLOURS, PHASE_COLOURS, Scale, picture, rows_of, shorten
from lowtide.units import format_bytes, format_ms

_MODULES, _OPS, _SHOWN, _BINS = 12, 6, 1000, 24
_FITS, _FITS_NOT = "#0072B2", "#D55E00"
_MIB = 2**20
_PART = 0.005
"""Of all bytes; the smallest activations up to here are not ranked and not compared."""


def draw_activation_idle(profile: Profile, path: Path) -> None:
    """Each wait in time, bytes by length of the wait, the modules that hold most for longest, wait against price."""
    with picture(path, profile, "how long activations lie idle, and what making them again takes", (15, 11)) as figure:
        if not profile.activations:
            nothing_to_show(figure.add_subplot(), "this step keeps no activation from forward to backward")
            return
        upper, lower = rows_of(figure, 1, 1.1)
        waits, by_length = upper.subplots(1, 2, width_ratios=[1.25, 1])
        _waits(upper, waits, profile)
        _by_length(by_length, profile)
        by_module, against_price = lower.subplots(1, 2, width_ratios=[1.25, 1])
        _by_module(by_module, profile)
        _against_price(against_price, profile)


def _waits(figure: SubFigure, axes: Axes, profile: Profile) -> None:
    """A bar per activation from its last forward to its first backward use, as high as it has bytes."""
    shown = sorted(sorted(profile.activations, key=lambda a: -a.memory_size_B)[:_SHOWN], key=lambda a: a.created)
    ends = list(accumulate(op.runtime_ms for op in profile.ops))
    time = Scale.of_ms(ends[-1])
    tops = list(accumulate(a.memory_size_B for a in shown))
    bytes_ = Scale.of_bytes(tops[-1])
    bars = []
    for a, top in zip(shown, tops, strict=True):
        left = ends[a.last_fw_use] / time.factor
        right = (ends[a.first_bw_use] - profile.ops[a.first_bw_use].runtime_ms) / time.factor
        low, high = (top - a.memory_size_B) / bytes_.factor, top / bytes_.factor
        bars.append([(left, low), (right, low), (right, high), (left, high)])
    prices = [_price(a) for a in _that_matter(profile)]
    norm = LogNorm(min(prices), max(max(prices), 2 * min(prices)), clip=True)
    lines = PolyCollection(bars, cmap="viridis_r", norm=norm, linewidths=0)
    lines.set_array([_price(a) for a in shown])
    axes.add_collection(lines)
    axes.set_xlim(0, ends[-1] / time.factor or 1)
    axes.set_ylim(tops[-1] / bytes_.factor or 1, 0)
    backward = next((op.rank for op in profile.ops if op.phase is Phase.BACKWARD), 0)
    if backward:
        at = ends[backward - 1] / time.factor
        axes.axvline(at, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        colour, above = PHASE_COLOURS[Phase.BACKWARD], axes.get_xaxis_transform()
        axes.text(at, 1.01, "backward begins", transform=above, ha="center", va="bottom", color=colour, weight="bold")
    count = len(profile.activations)
    which = "Each activation" if len(shown) == count else f"The {len(shown)} largest of {count:,} activations"
    axes.set_title(f"{which}: its wait, as high as its bytes", pad=20)
    axes.set_xlabel(f"time since the step began ({time.unit}), op times added up")
    axes.set_ylabel(f"{bytes_.unit}, in the order of creation")
    bar = figure.colorbar(lines, ax=axes, pad=0.01, fraction=0.04, format=lambda price, _: f"{price:g}")
    bar.ax.minorticks_off()
    bar.set_label("ms to make a MiB again")


def _by_length(axes: Axes, profile: Profile) -> None:
    """How many bytes wait how long; in each bar, those that could be swapped out and in meanwhile."""
    most = max(a.inactive_time_ms for a in profile.activations) or 1.0
    time = Scale.of_ms(most)
    bars = {fits: [0] * _BINS for fits in (True, False)}
    for a in profile.activations:
        bars[_swap_fits(a)][min(_BINS - 1, int(_BINS * a.inactive_time_ms / most))] += a.memory_size_B
    size = Scale.of_bytes(max(map(sum, zip(*bars.values(), strict=True))))
    width = most / _BINS / time.factor
    low = [0.0] * _BINS
    tier = shorten(profile.transfer_tier, 30)
    for fits, colour, text in ((True, _FITS, "fits"), (False, _FITS_NOT, "does not fit")):
        group = [a for a in profile.activations if _swap_fits(a) is fits]
        label = f"{text}: {len(group)}, {format_bytes(sum(a.memory_size_B for a in group))}"
        heights = [value / size.factor for value in bars[fits]]
        places = [(k + 0.5) * width for k in range(_BINS)]
        axes.bar(places, heights, 0.92 * width, bottom=low, color=colour, label=label)
        low = heights
    axes.set_title("Bytes by how long they lie idle")
    axes.set_xlabel(f"idle time ({time.unit})")
    axes.set_ylabel(size.unit)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.2)
    axes.legend(loc="upper left", title=f"swapping out and in ({tier}) within that time", alignment="left", ncols=2)


def _by_module(axes: Axes, profile: Profile) -> None:
    """Ranked by bytes times wait, all layers alike together: which module to change."""
    shown = _that_matter(profile)
    weights = [(a.module, a.memory_size_B * a.inactive_time_ms) for a in shown]
    kinds = largest_kinds(weights, _MODULES)
    members: dict[str, list[ActivationRecord]] = {kind: [] for kind in kinds}
    for a in shown:
        members.get(module_kind(a.module), members.get(REST, [])).append(a)
    held = {kind: sum(a.memory_size_B * a.inactive_time_ms for a in group) for kind, group in members.items()}
    scale = Scale.of_bytes(max(held.values()) / 1000)
    texts = [
        f"{len(group)}, {format_bytes(sum(a.memory_size_B for a in group))}, "
        f"again in {format_ms(sum(a.recomp_time_ms for a in group))}"
        for group in members.values()
    ]
    lengths = [held[kind] / 1000 / scale.factor for kind in members]
    colours = ["#C4C4C4" if kind == REST else _FITS for kind in members]
    horizontal_bars(axes, [shorten(kind, 44) for kind in members], [(lengths, colours)], texts)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.25)
    axes.set_title("Bytes x idle time by module, layers alike together")
    axes.set_xlabel(f"{scale.unit} x seconds; behind: how many, their bytes, time to make all of them again")


def _against_price(axes: Axes, profile: Profile) -> None:
    """Right and low is what a plan drops first: it waits long and is cheap to make again."""
    shown = _that_matter(profile)
    time = Scale.of_ms(max(a.inactive_time_ms for a in shown))
    ops = [(profile.ops[a.created].op.removeprefix("aten.").partition(".")[0], a) for a in shown]
    sizes: dict[str, int] = {}
    for op, a in ops:
        sizes[op] = sizes.get(op, 0) + a.memory_size_B
    named = sorted(sizes, key=lambda op: -sizes[op])[:_OPS]
    most = max(a.memory_size_B for a in shown) or 1
    for number, op in enumerate([*named, ""]):
        group = [a for name, a in ops if name == op or (not op and name not in named)]
        if group:
            axes.scatter(
                [a.inactive_time_ms / time.factor for a in group],
                [_price(a) for a in group],
                s=[6 + 90 * a.memory_size_B / most for a in group],
                c=KIND_COLOURS[number] if op else "#999999",
                alpha=0.65,
                linewidths=0,
                label=f"{shorten(op, 28) or 'other ops'}: {format_bytes(sum(a.memory_size_B for a in group))}",
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda price, _: f"{price:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title("Idle time against the price of making it again")
    left_out = len(profile.activations) - len(shown)
    small = f"; the {left_out} smallest, {_PART:.1%} of all bytes, left out" if left_out else ""
    axes.set_xlabel(f"idle time ({time.unit}){small}")
    axes.set_ylabel("ms to make a MiB again")
    axes.set_ylim(axes.get_ylim()[0], axes.get_ylim()[1] ** 1.2 * 4)
    legend = axes.legend(loc="upper left", title="made by; the larger, the more bytes", alignment="left", ncols=2)
    for dot in legend.legend_handles:
        if dot is not None:
            dot.set_sizes([40])  # type: ignore[attr-defined]


def _that_matter(profile: Profile) -> list[ActivationRecord]:
    """The largest, which hold all bytes but a small part: statistics of a norm cost much a byte, and are nothing."""
    ranked = sorted(profile.activations, key=lambda a: -a.memory_size_B)
    reached = list(accumulate(a.memory_size_B for a in ranked))
    return [a for a, total in zip(ranked, reached, strict=True) if total - a.memory_size_B <= (1 - _PART) * reached[-1]]


def _price(a: ActivationRecord) -> float:
    """Milliseconds to make a MiB of it again."""
    return max(a.recomp_time_ms, 1e-4) / max(a.memory_size_B, 1) * _MIB


def _swap_fits(a: ActivationRecord) -> bool:
    """Out and in again while nobody needs it."""
    return 2 * a.swap_time_ms <= a.inactive_time_ms
