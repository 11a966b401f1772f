"""The page's text; tests/reporting/page/test_in_browser.py looks at it as a reader does."""

import json
from html.parser import HTMLParser

import pytest

from lowtide.pages.report.data import as_json, page_data
from lowtide.pages.report.inputs import ReportInputs
from lowtide.pages.report.page import render
from tests.reporting.plans import chain_plan, chain_run
from tests.reporting.synthetic import chain, one_op
from tests.reporting.test_csv_files import NASTY

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>&amp;\u2028'\"" + NASTY


class _Reader(HTMLParser):
    """What a browser takes for elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_no_name_becomes_an_element() -> None:
    profile = chain(prefix=HOSTILE)
    page, plain = _Reader(), _Reader()
    page.feed(render(ReportInputs(profile, chain_plan(profile))))
    plain.feed(render(ReportInputs(chain(), chain_plan())))
    assert page.tags == plain.tags
    assert page.tags.count("script") == 3
    assert page.links == []
    data = json.loads(_embedded(page))
    assert data["title"] == profile.model
    assert profile.ops[0].name in data["strings"]


def _embedded(page: _Reader) -> str:
    return next(text for text in page.texts if text.startswith('{"title"'))


def test_names_come_back_as_they_were() -> None:
    assert json.loads(as_json({"name": HOSTILE})) == {"name": HOSTILE}
    assert not set("<>&\u2028") & set(as_json({"name": HOSTILE}))


@pytest.mark.parametrize(
    ("found", "there"),
    [
        (ReportInputs(profile=chain()), {"views": 1, "tables": 2, "modules": 0, "cards": 2}),
        (ReportInputs(plan=chain_plan()), {"views": 2, "tables": 2, "modules": 3, "cards": 4}),
        (ReportInputs(profile=chain(), plan=chain_plan()), {"views": 2, "tables": 3, "modules": 3, "cards": 6}),
        (ReportInputs(run=chain_run(chain_plan())), {"views": 0, "tables": 0, "modules": 0, "cards": 4}),
        (ReportInputs(run=chain_run(None)), {"views": 0, "tables": 0, "modules": 0, "cards": 2}),
        (ReportInputs(profile=one_op()), {"views": 1, "tables": 2, "modules": 0, "cards": 2}),
    ],
)
def test_what_is_there_is_shown(found: ReportInputs, there: dict[str, int]) -> None:
    data = page_data(found)
    assert {key: len(data[key]) for key in there} == there
    assert len(render(found)) < 300_000


def test_the_plan_stands_beside_each_activation() -> None:
    data = page_data(ReportInputs(chain(), chain_plan()))
    table = next(table for table in data["tables"] if table["key"] == "activations")
    column = next(column for column in table["columns"] if column["label"] == "plan")
    assert [data["strings"][value] for value in column["values"]] == ["packed", "recomputed", "kept"]


def test_swaps_are_counted_and_named() -> None:
    plan = chain_plan(lane="copy")
    data = page_data(ReportInputs(chain(), plan, chain_run(plan)))
    assert any(line.startswith("1 swapped, 1.00 KiB") for card in data["cards"] for line in card["lines"])
    assert data["modules"][0] == {"module": "layers.0", "bytes": {"swapped": 1024}}
    assert "swap" in [data["strings"][kind] for kind in data["views"][1]["kind"]]


def test_measured_figures_go_before_predicted_ones() -> None:
    plan = chain_plan()
    predicted = page_data(ReportInputs(plan=plan))["cards"][0]
    measured = page_data(ReportInputs(plan=plan, run=chain_run(plan)))["cards"][0]
    assert "predicted by the simulator" in predicted["lines"]
    assert (measured["before"], measured["value"], measured["change"]) == ("8.79 KiB", "6.84 KiB", "-22.2%")
    assert page_data(ReportInputs(run=chain_run(plan)))["equal"] is True
    assert page_data(ReportInputs(run=chain_run(plan, difference="the loss differs first")))["equal"] is False
