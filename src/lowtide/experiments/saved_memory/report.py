"""memory_saved_demo.gif: memory over one step, without a plan and with one, side by side, as sampled."""

from bisect import bisect_right
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from lowtide.experiments.saved_memory.record import MemorySamples, SampledStep
from lowtide.reporting.animation import write_gif
from lowtide.reporting.style import FAINT, INK, LIMIT_COLOUR, Scale, headed, shorten
from lowtide.units import format_bytes

_SIZE, _DPI = (10.0, 5.0), 80
_BEFORE, _AFTER = "#0072B2", "#009E73"


def draw_saved_demo(samples: MemorySamples, path: Path, *, frames: int) -> None:
    """Both steps begin and end together: one step's time on a shared machine says little, so it is not compared."""
    lines = (
        f"{shorten('; '.join(samples.batch), 90)}; optimizer: {shorten(samples.optimizer, 40)}",
        f"{samples.device}, torch {samples.torch}; one step each, sampled every {samples.every_ms:g} ms by the "
        f"{samples.memory_source}",
    )
    title = f"{shorten(samples.model, 40)}: memory over one training step, measured"
    highest = max(samples.before.peak_B, samples.after.peak_B, samples.budget_B)
    bytes_ = Scale.of_bytes(highest)
    with headed(title, lines, _SIZE, _DPI) as (figure, body):
        left, right = body.subplots(1, 2, sharey=True)
        left.set_ylabel(f"device memory ({bytes_.unit})")
        left.set_ylim(0, 1.35 * highest / bytes_.factor)
        saved = f" ({samples.after.peak_B / samples.before.peak_B - 1:+.1%})"
        sides = (
            _Side(left, samples.before, "eager", _BEFORE, bytes_, None, ""),
            _Side(right, samples.after, "with lowtide", _AFTER, bytes_, samples.budget_B, saved),
        )

        def show(frame: int) -> None:
            for side in sides:
                side.show((frame + 1) / frames)

        write_gif(path, figure, frames, show)


class _Side:
    """One of the two; the curve is drawn whole, and what has not happened yet is covered."""

    def __init__(
        self, axes: Axes, step: SampledStep, title: str, colour: str, bytes_: Scale, budget: int | None, saved: str
    ) -> None:
        self._step, self._bytes, self._saved = step, bytes_, saved
        heights = [size / bytes_.factor for size in (*step.bytes, step.bytes[-1])]
        self._end = max(step.step_ms, step.ms[-1])
        shares = [100 * ms / self._end for ms in (*step.ms, self._end)]
        axes.fill_between(shares, heights, color=colour, alpha=0.35, step="post", linewidth=0)
        axes.step(shares, heights, where="post", color=colour, linewidth=1.4)
        self._cover = Rectangle((0, 0), 102, axes.get_ylim()[1], facecolor="white", zorder=2.3, clip_on=False)
        self._cover.set_in_layout(False)
        axes.add_patch(self._cover)
        self._peak = axes.axhline(0, color=INK, linewidth=1, linestyle=":", zorder=4)
        if budget is not None:
            at = budget / bytes_.factor
            axes.axhline(at, color=LIMIT_COLOUR, linewidth=1.3, linestyle="--", zorder=4)
            axes.text(1, at, f"budget {format_bytes(budget)}", color=LIMIT_COLOUR, va="bottom", size=10, zorder=5)
        axes.grid(visible=False)
        axes.set_xlim(0, 100)
        axes.set_xlabel("of the step (%)")
        axes.set_title(title)
        self._now = axes.text(
            0.98, 0.97, "", transform=axes.transAxes, ha="right", va="top", size=13, weight="bold", color=INK, zorder=5
        )
        self._small = axes.text(
            0.98, 0.885, "", transform=axes.transAxes, ha="right", va="top", size=10, color=FAINT, zorder=5
        )

    def show(self, share: float) -> None:
        """What was there after `share` of the step."""
        step = self._step
        self._cover.set_x(100 * share)
        seen = max(bisect_right(step.ms, share * self._end), 1)
        highest = step.peak_B if share >= 1 else max(step.bytes[:seen])
        self._peak.set_ydata([highest / self._bytes.factor] * 2)
        if share >= 1:
            self._now.set_text(f"peak {format_bytes(step.peak_B)}{self._saved}")
            self._small.set_text("by the allocator, to the byte")
        else:
            self._now.set_text(format_bytes(step.bytes[seen - 1]))
            self._small.set_text(f"highest so far {format_bytes(highest)}")
