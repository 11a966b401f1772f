"""Moving pictures: frames of a figure that is changed a little each time, in one small GIF."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from lowtide.files import writing

_COLOURS = 128
_FRAME_MS, _LAST_MS = 90, 3000

Pixels = npt.NDArray[np.int32]
"""Per pixel its red, green and blue as one number."""


def write_gif(path: Path, figure: Figure, frames: int, show: Callable[[int], None]) -> None:
    """`show(k)` changes the figure for frame k of `frames`; the last one stays a while.

    All frames share few colours, undithered, so that a frame stores only what has changed.
    """
    show(frames - 1)
    figure.canvas.draw()  # lays everything out once, at its fullest
    figure.set_layout_engine("none")
    pictures = []
    for frame in range(frames):
        show(frame)
        pictures.append(_pixels(figure))
    palette = _Palette([pictures[0], pictures[frames // 2], pictures[-1]])
    images = [palette.image(picture) for picture in pictures]
    lasting = [*[_FRAME_MS] * (frames - 1), _LAST_MS]
    with writing(path) as temporary:
        images[0].save(
            temporary, format="GIF", save_all=True, append_images=images[1:], duration=lasting, loop=0, optimize=True
        )


class _Palette:
    """The commonest colours of some pictures, exactly; what blends two of them at an edge becomes the nearest."""

    def __init__(self, pictures: Sequence[Pixels]) -> None:
        counts: Counter[int] = Counter()
        for picture in pictures:
            colours, times = np.unique(picture, return_counts=True)
            counts.update(dict(zip(colours.tolist(), times.tolist(), strict=True)))
        self._colours = _channels(np.array([colour for colour, _ in counts.most_common(_COLOURS)], dtype=np.int32))
        self._places = np.full(2**24, -1, dtype=np.int16)
        """Per colour its place in the palette, found when first met."""

    def image(self, picture: Pixels) -> Image.Image:
        """`picture` in these colours."""
        new = np.unique(picture[self._places[picture] < 0])
        away = _channels(new)[:, None, :] - self._colours[None, :, :]
        self._places[new] = (away * away).sum(axis=2).argmin(axis=1)
        made = Image.fromarray(self._places[picture].astype(np.uint8))
        made.putpalette(self._colours.astype(np.uint8).tobytes())
        return made


def _channels(colours: Pixels) -> Pixels:
    """One row of red, green and blue for each."""
    return np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1)


def _pixels(figure: Figure) -> Pixels:
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    channels = np.asarray(canvas.buffer_rgba()).astype(np.int32)
    return channels[..., 0] << 16 | channels[..., 1] << 8 | channels[..., 2]
