"""`lowtide fit` as one page: the table over devices and all pictures, in a file that asks for nothing from anywhere."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lowtide.files import write_text
from lowtide.fitting.record import Fit
from lowtide.fitting.report import column, rows, title

PAGE_NAME = "fit.html"
_STATIC = Path(__file__).with_name("static")


def write_page(fits: Sequence[Fit], pictures: Sequence[Path], path: Path) -> None:
    """Write the page; `pictures` has the memory curve of each."""
    style = (_STATIC / "fit.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(loader=FileSystemLoader(_STATIC), autoescape=True, undefined=StrictUndefined)
    drawn = [base64.b64encode(picture.read_bytes()).decode() for picture in pictures]
    page = environment.get_template("fit.html.jinja").render(
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        style=style,
        title=title(fits[0]),
        columns=[column(fit) for fit in fits],
        rows=rows(fits),
        devices=[(column(fit), fit.source, picture) for fit, picture in zip(fits, drawn, strict=True)],
    )
    write_text(path, page)
