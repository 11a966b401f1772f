"""profiler_demo.gif: the profiler walks through one step; memory builds up, with the op and module of the moment."""

from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.animation import write_gif
from lowtide.reporting.step_view import StepView, measured_view
from lowtide.reporting.style import FAINT, INK, PHASE_COLOURS, Scale, batch_line, headed, how_measured, shorten
from lowtide.units import format_bytes, format_ms

_SIZE, _DPI = (10.0, 5.4), 80


def draw_profiler_demo(profile: Profile, path: Path, *, frames: int) -> None:
    """Frames are evenly spaced in the step's time; the last one points at the peak."""
    view = measured_view(profile)
    lines = (
        f"{shorten(batch_line(profile), 90)}; optimizer: {shorten(profile.optimizer, 40)}",
        f"{profile.device}, torch {profile.torch}; times: {how_measured(profile)}; bytes: {profile.memory_source}",
    )
    title = f"{shorten(profile.model, 40)}: profiling one training step, op by op"
    with headed(title, lines, _SIZE, _DPI) as (figure, body):
        axes, text = body.subplots(2, 1, height_ratios=[4.2, 1])
        text.axis("off")
        walk = _Walk(profile, view, axes, text)
        write_gif(path, figure, frames, lambda frame: walk.show((frame + 1) / frames))


class _Walk:
    """The whole step is drawn; what has not run yet is covered."""

    def __init__(self, profile: Profile, view: StepView, axes: Axes, text: Axes) -> None:
        self._profile, self._view = profile, view
        bytes_, self._time = Scale.of_bytes(view.peak), Scale.of_ms(view.ms)
        self._end = view.ms / self._time.factor
        self._ends = list(accumulate(run.ms for run in view.runs))
        self._highest = list(accumulate(view.totals, max))
        top = 1.08 * view.peak / bytes_.factor or 1.0
        edges = [0.0, *(end / self._time.factor for end in self._ends)]
        layers = [[size / bytes_.factor for size in (*layer.bytes, layer.bytes[-1])] for layer in view.layers]
        axes.stackplot(edges, layers, colors=[layer.colour for layer in view.layers], step="post", linewidth=0)
        self._cover = Rectangle((0, 0), 1.01 * self._end, top, facecolor="white", zorder=2.3, clip_on=False)
        self._cover.set_in_layout(False)
        axes.add_patch(self._cover)
        self._now = axes.axvline(0, color=INK, linewidth=1.2, zorder=4)
        self._peak = axes.axhline(0, color=INK, linewidth=1, linestyle=":", zorder=5)
        axes.set_axisbelow(False)
        axes.grid(visible=False)
        axes.set_xlim(0, self._end)
        axes.set_ylim(0, top)
        axes.set_xlabel(f"time ({self._time.unit})")
        axes.set_ylabel(f"device memory ({bytes_.unit})")
        handles = [Patch(color=layer.colour, label=layer.word) for layer in reversed(view.layers)]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)
        self._bytes = bytes_
        self._phase = text.text(0.0, 0.9, "", va="top", size=12, weight="bold")
        self._op = text.text(0.16, 0.9, "", va="top", size=12, color=INK, weight="bold")
        self._where = text.text(0.16, 0.45, "", va="top", size=10, color=FAINT)
        self._memory = text.text(1.0, 0.9, "", va="top", ha="right", size=12, color=INK, weight="bold")
        self._so_far = text.text(1.0, 0.45, "", va="top", ha="right", size=10, color=FAINT)

    def show(self, share: float) -> None:
        """The moment at `share` of the step's time; at the end, the peak."""
        step = self._profile.peak_rank if share >= 1 else self._step_at(share * self._view.ms)
        now = self._end * min(share, 1)
        self._cover.set_x(now)
        at = self._ends[step] / self._time.factor if share >= 1 else now
        self._now.set_xdata([at, at])
        highest = self._highest[-1 if share >= 1 else step]
        self._peak.set_ydata([highest / self._bytes.factor] * 2)
        run = self._view.runs[step]
        self._phase.set_text("the peak" if share >= 1 else run.phase)
        self._phase.set_color(PHASE_COLOURS[Phase(run.phase)])
        self._op.set_text(shorten(run.name, 44))
        self._where.set_text(f"{shorten(run.module or '(root)', 62)}\n{shorten(run.source, 62)}")
        self._memory.set_text(format_bytes(self._view.totals[step]))
        done = len(self._view.runs) if share >= 1 else step + 1
        passed = format_ms(share * self._view.ms)
        self._so_far.set_text(f"highest {format_bytes(highest)}\nop {done:,} of {len(self._view.runs):,}, {passed}")

    def _step_at(self, ms: float) -> int:
        return next((step for step, end in enumerate(self._ends) if end >= ms), len(self._ends) - 1)
