"""The page: every record below a folder, put into the template."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lowtide.experiments.largest.record import Largest
from lowtide.experiments.policies.record import Policies
from lowtide.experiments.predictions.record import Prediction
from lowtide.experiments.swap.record import SwapComparison
from lowtide.experiments.sweep.record import Sweep
from lowtide.pages.analysis.cells import plain
from lowtide.pages.analysis.experiments import (
    failure_lines,
    latency_rows,
    limit_row,
    peak_rows,
    policy_rows,
    swap_rows,
    worst_rows,
)
from lowtide.pages.analysis.highlights import (
    limit_highlights,
    policy_highlights,
    prediction_highlights,
    sweep_highlights,
)
from lowtide.pages.analysis.profiles import Row, profile_facts
from lowtide.pages.analysis.surprises import batch_surprise, cost_surprise, floor_surprise, limit_surprise
from lowtide.records.profile import Profile


@dataclass(frozen=True)
class Source:
    """A record with the links that stand beside what is taken from it."""

    record: Any
    """What the template needs of it."""
    link: str
    """To the raw file."""
    folder: str
    """To its folder, as a link's target."""
    pictures: frozenset[str]
    """The pictures beside it."""


def analysis_page(reports: Path, predictions: Sequence[Prediction], at: Path) -> str:
    """The text of the page that will lie at `at`, from the records below `reports`."""

    def sources(name: str, read: Callable[[Path], Any]) -> list[Source]:
        return [_source(path, read(path), reports, at) for path in sorted(reports.rglob(name))]

    environment = Environment(
        loader=PackageLoader("lowtide.pages.analysis", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # it is Markdown: cells.plain escapes what comes from models
    )
    environment.filters["row"] = _row
    return environment.get_template("analysis.md.jinja").render(
        profiles=sources("profile.json", lambda path: profile_facts(Profile.load(path))),
        sweeps=sources("sweep.json", Sweep.load),
        policies=sources("policies.json", Policies.load),
        limits=sources("largest.json", Largest.load),
        swaps=sources("swap.json", SwapComparison.load),
        predictions=list(predictions),
        predicted=_target(reports / "predictions", at) if (reports / "predictions").is_dir() else None,
        reports=_target(reports, at),
        plain=plain,
        peak_rows=peak_rows,
        latency_rows=latency_rows,
        failure_lines=failure_lines,
        policy_rows=policy_rows,
        limit_row=limit_row,
        swap_rows=swap_rows,
        worst_rows=worst_rows,
        sweep_highlights=sweep_highlights,
        policy_highlights=policy_highlights,
        limit_highlights=limit_highlights,
        prediction_highlights=prediction_highlights,
        batch_surprise=batch_surprise,
        floor_surprise=floor_surprise,
        cost_surprise=cost_surprise,
        limit_surprise=limit_surprise,
    )


def _source(path: Path, record: Any, reports: Path, at: Path) -> Source:
    name = plain(str(path.relative_to(reports)))
    pictures = frozenset(picture.name for picture in path.parent.glob("*.png"))
    return Source(record, f"[{name}]({_target(path, at)})", _target(path.parent, at), pictures)


def _target(path: Path, at: Path) -> str:
    return os.path.relpath(path, at.parent).replace(" ", "%20")


def _row(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"
