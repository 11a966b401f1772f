"""All that the page knows, as one JSON value: names are data, and stand in one table of strings."""

import json
from dataclasses import asdict
from typing import Any

from lowtide.pages.report.fillers import fillers
from lowtide.pages.report.head import about, cards, title_of
from lowtide.pages.report.inputs import ReportInputs
from lowtide.pages.report.tables import Column, PageTable, activations_table, ops_table, steps_table
from lowtide.records.step_plan import StepPlan
from lowtide.reporting.module_groups import module_groups
from lowtide.reporting.plan_view import planned_view, unplanned_view
from lowtide.reporting.step_view import StepView, measured_view
from lowtide.reporting.training_table import verdict

_GROUPS = 28
_TEXT = ("text", "path", "choice", "op", "where")


class Strings:
    """Each string once, by number: thousands of rows repeat few modules and lines."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The place of `text` in the table."""
        return self._numbers.setdefault(text, len(self._numbers))

    def table(self) -> list[str]:
        """All of them."""
        return list(self._numbers)


def views_of(found: ReportInputs) -> list[StepView]:
    """The step as captured, and as planned where there is a plan that changes it."""
    profile, plan = found.profile, found.plan
    views = []
    if profile is not None:
        views.append(measured_view(profile))
    elif plan is not None:
        views.append(unplanned_view(plan, None))
    if plan is not None and plan.rewritten:
        views.append(planned_view(plan, profile))
    return views


def page_data(found: ReportInputs) -> dict[str, Any]:
    """The page's content."""
    strings, views, run = Strings(), views_of(found), found.run
    plan = found.plan if found.plan is not None and found.plan.rewritten else None
    content = {
        "title": title_of(found),
        "about": about(found),
        "verdict": "" if run is None else verdict(run),
        "equal": None if run is None or not run.compared else run.difference is None,
        "cards": [asdict(card) for card in cards(found)],
        "budget": None if found.plan is None else found.plan.budget,
        "views": [_view(view, strings) for view in views],
        "before": None if plan is None else _outline(unplanned_view(plan, found.profile)),
        "fillers": [] if found.profile is None else [asdict(filler) for filler in fillers(found.profile)],
        "modules": [] if plan is None else _modules(plan),
        "tables": [_table(table, strings) for table in _tables(found, views)],
        "frontier": [asdict(point) for point in found.frontier],
        "sweep": [asdict(case) for case in found.sweep],
    }
    return {**content, "strings": strings.table()}


def as_json(content: dict[str, Any]) -> str:
    """JSON that may stand inside of a script element: no character in it can end one or begin another."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _tables(found: ReportInputs, views: list[StepView]) -> list[PageTable]:
    plan = found.plan if found.plan is not None and found.plan.rewritten else None
    made = [None if found.profile is None else ops_table(found.profile, plan)]
    made.append(activations_table(found.profile, plan))
    made.append(None if plan is None else steps_table(views[-1]))
    return [table for table in made if table is not None]


def _view(view: StepView, strings: Strings) -> dict[str, Any]:
    return {
        "title": view.title,
        "how": view.how,
        "end": _ms(view.ms),
        "start": [_ms(run.start_ms) for run in view.runs],
        "ms": [_ms(run.ms) for run in view.runs],
        **{
            key: [strings.number(getattr(run, key)) for run in view.runs]
            for key in ("name", "op", "module", "source", "phase", "kind", "lane")
        },
        "layers": [asdict(layer) for layer in view.layers],
    }


def _outline(view: StepView) -> dict[str, Any]:
    """Only the height."""
    return {"end": _ms(view.ms), "start": [_ms(run.start_ms) for run in view.runs], "bytes": view.totals}


def _modules(plan: StepPlan) -> list[dict[str, Any]]:
    """Bytes of the activations by module and by what becomes of them, in the order of the model."""
    groups = module_groups([action.module for action in plan.actions], _GROUPS)
    rows: dict[str, dict[str, int]] = {}
    for fate in plan.fates:
        row = rows.setdefault(groups[fate.op] or "(root)", {})
        row[fate.what] = row.get(fate.what, 0) + plan.problem.storages[fate.storage].bytes
    return [{"module": module, "bytes": row} for module, row in rows.items()]


def _table(table: PageTable, strings: Strings) -> dict[str, Any]:
    return {
        "key": table.key,
        "title": table.title,
        "note": table.note,
        "sort": table.sort,
        "columns": [_column(column, strings) for column in table.columns],
    }


def _column(column: Column, strings: Strings) -> dict[str, Any]:
    values: list[Any] = list(column.values)
    if column.kind in _TEXT:
        values = [strings.number(value) for value in values]
    elif column.kind in ("ms", "rate"):
        values = [_ms(value) for value in values]
    return {**asdict(column), "values": values}


def _ms(value: float) -> float:
    """To the tenth of a microsecond: more is noise, and bytes of the page."""
    return round(value, 4)
