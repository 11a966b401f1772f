"""Moving pictures: frames of a figure that is changed a little each time, in one small GIF."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from lowtide.files import writing

_COLOURS = 64
_FRAME_MS, _LAST_MS = 90, 3000


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
        pictures.append(_image(figure))
    palette = _palette([pictures[0], pictures[frames // 2], pictures[-1]])
    images = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    lasting = [*[_FRAME_MS] * (frames - 1), _LAST_MS]
    with writing(path) as temporary:
        images[0].save(
            temporary, format="GIF", save_all=True, append_images=images[1:], duration=lasting, loop=0, optimize=True
        )


def _palette(pictures: Sequence[Image.Image]) -> Image.Image:
    """The colours of these, rare ones included: a thin line matters as much as a wide ground."""
    width, height = pictures[0].size
    montage = Image.new("RGB", (width, height * len(pictures)))
    for place, picture in enumerate(pictures):
        montage.paste(picture, (0, height * place))
    return montage.quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def _image(figure: Figure) -> Image.Image:
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    return Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
