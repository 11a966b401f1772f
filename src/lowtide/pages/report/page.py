"""Puts the page together: template, style, scripts and data in one file that asks for nothing from anywhere."""

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lowtide.files import write_text
from lowtide.pages.report.data import as_json, page_data, views_of
from lowtide.pages.report.head import title_of
from lowtide.pages.report.inputs import ReportInputs
from lowtide.reporting.trace import TRACE_NAME, write_trace

PAGE_NAME = "report.html"
_STATIC = Path(__file__).with_name("static")
_SCRIPTS = ("words.js", "step_chart.js", "plan_strip.js", "table.js", "line_charts.js", "page.js")
"""One script in the page: each file may use what stands before it."""


def report_files(found: ReportInputs) -> tuple[str, ...]:
    """The files that `write_report` writes; there is a trace where a step is known op by op."""
    return (PAGE_NAME, TRACE_NAME) if views_of(found) else (PAGE_NAME,)


def write_report(found: ReportInputs, folder: Path) -> None:
    """Write the page, and the trace beside it."""
    write_text(folder / PAGE_NAME, render(found))
    views = views_of(found)
    if views:
        write_trace(views, title_of(found), folder / TRACE_NAME)


def render(found: ReportInputs) -> str:
    """The page. Its policy lets the browser run the scripts named here by their hashes and load nothing at all."""
    plotting, app = _file("uplot/uPlot.iife.min.js"), _app()
    style = _file("uplot/uPlot.min.css") + _file("report.css")
    policy = (
        f"default-src 'none'; script-src {_hash(plotting)} {_hash(app)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(loader=FileSystemLoader(_STATIC), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.jinja").render(
        policy=policy,
        style=style,
        plotting=plotting,
        plotting_licence=_file("uplot/LICENSE"),
        app=app,
        data=as_json(page_data(found)),
    )


@cache
def _file(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _app() -> str:
    parts = "\n".join(_file(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
