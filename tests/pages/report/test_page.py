"""The page's text; tests/reporting/page/test_in_browser.py looks at it as a reader does."""

import json
from html.parser import HTMLParser

import pytest

from lowtide.forecast import Forecast
from lowtide.pages.report.data import as_json, page_data
from lowtide.pages.report.inputs import ReportInputs
from lowtide.pages.report.page import render
from lowtide.reporting.frontier import FrontierPoint
from lowtide.units import format_bytes
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
        (ReportInputs(profile=chain()), {"views": 1, "tables": 2, "modules": 0, "cards": 3, "fillers": 1}),
        (ReportInputs(plan=chain_plan()), {"views": 2, "tables": 2, "modules": 3, "cards": 4}),
        (ReportInputs(profile=chain(), plan=chain_plan()), {"views": 2, "tables": 3, "modules": 3, "cards": 7}),
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


def _card(found: ReportInputs, label: str) -> dict[str, object]:
    (card,) = [card for card in page_data(found)["cards"] if card["label"] == label]
    return card  # type: ignore[no-any-return]


def test_the_module_at_the_peak_is_the_headline() -> None:
    card = _card(ReportInputs(chain(), chain_plan()), "Without a plan the peak is in")
    assert card["value"] == "layers.2"
    assert card["lines"] == (
        "op3",
        "model.py:3",
        "op 3 of 7, in backward",
        "3.00 KiB are always there: parameters, state, batch",
    )


def test_the_module_to_change_is_named_with_what_it_holds() -> None:
    found = ReportInputs(chain())
    (row,) = page_data(found)["fillers"]
    assert (row["module"], row["count"], row["bytes"], row["recompute_ms"]) == ("layers.*", 3, 3072, 6.0)
    assert row["share"] == 3072 / chain().peak_B
    card = _card(found, "Most of the peak is kept by")
    assert card["value"] == "layers.*"
    assert card["lines"] == (
        "3 activations, 3.00 KiB: 40.0% of the peak",
        "making all of them again takes 6.0 ms, 21.4% of the step",
    )


@pytest.mark.parametrize(
    ("planned", "value", "change"),
    [(False, format_bytes(Forecast(chain_plan()).peak), "+5.0% time"), (True, "1.95 KiB", "+20.0% time")],
)
def test_the_next_smaller_budget_is_the_frontiers(planned: bool, value: str, change: str) -> None:
    points = (
        FrontierPoint(2000, 0.2, 0.15, 1.0),
        FrontierPoint(Forecast(chain_plan()).peak, 0.05, 0.05, 1.0),
        FrontierPoint(77000, 0.0, 0.0, 1.0),
    )
    found = ReportInputs(chain(), chain_plan() if planned else None, frontier=points)
    card = _card(found, "The next smaller budget")
    assert (card["value"], card["change"]) == (value, change)
    assert "from the frontier record" in card["lines"]  # type: ignore[operator]


def test_where_the_frontier_ends_it_says_so() -> None:
    card = _card(ReportInputs(chain(), frontier=(FrontierPoint(7700, 0.0, 0.0, 1.0),)), "A smaller budget")
    assert card["value"] == "none"


def test_no_word_of_the_page_needs_explaining() -> None:
    """What is neither parameter, gradient nor activation says what it is."""
    words = [layer["word"] for layer in page_data(ReportInputs(chain()))["views"][0]["layers"]]
    assert "other" not in words
    assert "temporaries, buffers, batch" in words
