"""How every picture looks: colours that colour-blind readers tell apart, units, titles, and saving."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from lowtide.files import writing
from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Phase, Role

# Okabe and Ito's colours; what is always there is grey.
PHASE_COLOURS = {Phase.FORWARD: "#0072B2", Phase.BACKWARD: "#D55E00", Phase.OPTIMIZER: "#009E73"}
ROLE_COLOURS = {
    Role.PARAMETER: "#8A8A8A",
    Role.OPTIMIZER_STATE: "#C4C4C4",
    Role.GRADIENT: "#E69F00",
    Role.ACTIVATION: "#56B4E9",
    Role.OTHER: "#F0E442",
}
ROLE_WORDS = {
    Role.PARAMETER: "parameters",
    Role.OPTIMIZER_STATE: "optimizer state",
    Role.GRADIENT: "gradients",
    Role.ACTIVATION: "activations",
    Role.OTHER: "temporaries, buffers, batch",
}
KIND_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#F0E442", "#6A51A3", "#A6761D")
"""For kinds of modules and ops, the largest first."""
WORKSPACE_COLOUR = "#CC79A7"
LIMIT_COLOUR = "#B00020"
WITHOUT, WITH = "#0072B2", "#D55E00"
"""Without a plan, and with one."""
INK, FAINT = "#222222", "#666666"

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.parse_math": False,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "patch.linewidth": 0,
}
_HEAD_INCHES = 0.82
_DPI = 120
_COLOURS = 256


@contextmanager
def picture(path: Path, profile: Profile, title: str, size: tuple[float, float]) -> Iterator[SubFigure]:
    """A figure whose head says what was measured and how; saved to `path`, all or nothing, when the block ends well."""
    with framed(path, f"{shorten(profile.model, 40)}: {title}", _head(profile), size) as body:
        yield body


@contextmanager
def framed(path: Path, title: str, lines: Sequence[str], size: tuple[float, float]) -> Iterator[SubFigure]:
    """A figure with a title and two lines of small print above it; saved like `picture`."""
    with headed(title, lines, size, _DPI) as (figure, body):
        yield body
        save_png(figure, path)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure with a palette of its own instead of every shade: a third of the bytes, and no eye sees it."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    about = PngInfo()
    about.add_text("Software", "lowtide")
    with Image.open(drawn) as image, writing(path) as temporary:
        few = image.convert("RGB").quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(temporary, format="PNG", optimize=True, pnginfo=about)


@contextmanager
def headed(title: str, lines: Sequence[str], size: tuple[float, float], dpi: int) -> Iterator[tuple[Figure, SubFigure]]:
    """A figure with that head, and its body; the block draws, and does with it what it wants."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=size, dpi=dpi, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06))
        FigureCanvasAgg(figure)
        head, body = rows_of(figure, _HEAD_INCHES, size[1] - _HEAD_INCHES)
        head.text(0.012, 0.86, title, va="top", size=14, weight="bold", color=INK)
        for line, text in enumerate(lines):
            head.text(0.012, 0.48 - 0.24 * line, text, va="top", size=9, color=FAINT)
        yield figure, body


def rows_of(figure: Figure | SubFigure, *heights: float) -> Sequence[SubFigure]:
    """Parts of a figure one below the other, each laid out on its own."""
    return figure.subfigures(len(heights), 1, height_ratios=list(heights)).tolist()  # type: ignore[union-attr, no-any-return]


def batch_line(profile: Profile) -> str:
    """The batch's tensors in one line; where they all are is said elsewhere."""
    return ", ".join(line.removesuffix(f" on {profile.device}") for line in profile.batch)


def how_measured(profile: Profile) -> str:
    """Where a time comes from."""
    runs = f"median of {profile.runs} runs" if profile.runs > 1 else "one run"
    return f"{runs} after {profile.warmup} to warm up"


def _head(profile: Profile) -> tuple[str, str]:
    machine = f"{shorten(profile.device, 40)}, {profile.threads} threads, torch {profile.torch}"
    return (
        f"{shorten(batch_line(profile), 130)}; optimizer: {shorten(profile.optimizer, 60)}",
        f"{machine}; times: {how_measured(profile)}; bytes: {shorten(profile.memory_source, 60)}",
    )


@dataclass(frozen=True)
class Scale:
    """The unit of an axis: values are divided by `factor`."""

    factor: float
    unit: str

    @classmethod
    def of_bytes(cls, most: float) -> "Scale":
        """KiB, MiB or GiB, by the largest value."""
        power, unit = next(
            (p, u) for p, u in ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")) if most >= 2**p or p == 0
        )
        return cls(2**power, unit)

    @classmethod
    def of_ms(cls, most: float) -> "Scale":
        """Milliseconds, or seconds where there are many."""
        return cls(1000, "s") if most >= 10_000 else cls(1, "ms")


def shorten(text: str, width: int) -> str:
    """At most `width` characters on one line, the end kept (a path's end says most), all of them in the font."""
    text = " ".join(text.split())
    text = text if len(text) <= width else "…" + text[len(text) - width + 1 :].lstrip(".")
    return "".join(c if ord(c) in _characters() else "?" for c in text)


def op_label(name: str, module: str, width: int = 52) -> str:
    """An op's name with the module it belongs to, shortened at the front of the module."""
    name = shorten(name, 30)
    return f"{name} · {shorten(module, width - len(name))}" if module else name


@cache
def _characters() -> frozenset[int]:
    """What the font can show."""
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def label_points(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """A text beside each point, where it covers the fewest points and texts. To be called last: axes must not move."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # axes and texts know their places then
    taken = [
        Bbox([(x - 4, y - 4), (x + 4, y + 4)]) for x, y in axes.transData.transform([point[:2] for point in points])
    ]
    for x, y, text in points:
        places: list[Annotation] = []
        for across, up in ((7, 5), (7, -13), (-7, 5), (-7, -13)):
            side: Literal["left", "right"] = "left" if across > 0 else "right"
            said = axes.annotate(text, (x, y), (across, up), textcoords="offset points", ha=side, size=8.5, color=INK)
            places.append(said)
        boxes = [said.get_window_extent() for said in places]
        covered = [box.count_overlaps(taken) + (box.x0 < axes.bbox.x0) for box in boxes]
        best = covered.index(min(covered))
        for said in places[:best] + places[best + 1 :]:
            said.remove()
        taken.append(boxes[best])
