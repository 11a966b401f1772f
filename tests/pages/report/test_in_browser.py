"""The page in a headless Chromium, as a reader sees it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from lowtide.pages.report.inputs import ReportInputs, SweepCase
from lowtide.pages.report.page import write_report
from lowtide.reporting.frontier import FrontierPoint
from tests.browser import chromium, console, requested
from tests.reporting.plans import chain_plan, chain_run
from tests.reporting.synthetic import chain

Open = Callable[[ReportInputs], Chrome]
OWNED = "window.owned = true"
HOSTILE = f"</script><script>{OWNED}</script><img src=x onerror='{OWNED}'><b>bold</b>&lt;"
FRONTIER = (FrontierPoint(1000, 0.2, 0.1, 0.3), FrontierPoint(2000, 0.0, 0.0, 0.1))
SWEEP = (
    SweepCase("chain", 4, 2000, 1500, 10.0, 11.0, 0.1, "losses equal"),
    SweepCase("chain", 8, None, 1800, None, 20.0, None, "without a plan: out of memory"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as chrome:
        yield chrome


@pytest.fixture
def opened(browser: Chrome, tmp_path: Path) -> Open:
    """Opens the page of some inputs, which must load without a word in the console and without asking for anything."""

    def open_page(found: ReportInputs) -> Chrome:
        write_report(found, tmp_path)
        page = (tmp_path / "report.html").as_uri()
        console(browser)
        browser.get(page)
        assert console(browser) == []
        assert requested(browser, page) == [page]
        return browser

    return open_page


def _all() -> ReportInputs:
    plan = chain_plan()
    return ReportInputs(chain(), plan, chain_run(plan), FRONTIER, SWEEP)


def _find(chrome: Chrome, selector: str) -> list[WebElement]:
    return chrome.find_elements(By.CSS_SELECTOR, selector)


def _hover(chrome: Chrome, share: float) -> str:
    """The card that the mouse brings up at `share` of the chart's width."""
    (over,) = _find(chrome, "#memory .u-over")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    away = round((share - 0.5) * over.size["width"])
    ActionChains(chrome, duration=0).move_to_element_with_offset(over, away, 0).perform()
    (card,) = _find(chrome, "#memory .card-hover")
    return card.text


def _press(chrome: Chrome, section: str, word: str) -> None:
    (button,) = [each for each in _find(chrome, f"#{section} button") if each.text.split("\n")[0].startswith(word)]
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def _column(chrome: Chrome, table: str, place: int) -> list[str]:
    cells = _find(chrome, f"#{table} .rows .row .cell:nth-child({place})")
    return [str(cell.get_property("textContent")) for cell in cells]


def _strip_colours(chrome: Chrome) -> set[str]:
    """What is drawn under the chart."""
    pixels = chrome.execute_script(
        "const strip = document.querySelector('.strip'); "
        "return [...strip.getContext('2d').getImageData(0, 0, strip.width, strip.height).data]"
    )
    return {f"{r:02X}{g:02X}{b:02X}" for r, g, b in zip(pixels[::4], pixels[1::4], pixels[2::4], strict=True)}


def _section_titles(chrome: Chrome) -> list[str]:
    return [title.text for title in _find(chrome, "section h2")]


def test_every_section_is_there(opened: Open) -> None:
    chrome = opened(_all())
    assert _section_titles(chrome) == [
        *("Before and after", "Memory over the step", "Which module to change", "What the plan does, by module"),
        *("Ops", "Activations", "Steps of the plan", "Peak against time", "By batch size"),
    ]
    assert chrome.title == "chain · lowtide"
    assert "Equal to eager training" in _find(chrome, "#summary .verdict.good")[0].text
    assert [row.text.split()[:2] for row in _find(chrome, "#sweep tbody tr")] == [["chain", "4"], ["chain", "8"]]
    assert "−25.0 %" in _find(chrome, "#sweep tbody tr")[0].text
    assert _find(chrome, "#sweep tbody tr")[1].text.endswith("without a plan: out of memory")
    assert chrome.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("found", "titles"),
    [
        (
            ReportInputs(profile=chain()),
            ["In short", "Memory over the step", "Which module to change", "Ops", "Activations"],
        ),
        (ReportInputs(run=chain_run(None)), ["In short"]),
        (ReportInputs(frontier=FRONTIER), ["In short", "Peak against time"]),
        (ReportInputs(sweep=SWEEP), ["By batch size"]),
        (
            ReportInputs(plan=replace(chain_plan(), rewritten=False)),
            ["In short", "Memory over the step"],
        ),
    ],
)
def test_some_of_the_inputs_make_a_page_too(opened: Open, found: ReportInputs, titles: list[str]) -> None:
    assert _section_titles(opened(found)) == titles


def test_hovering_says_what_runs_and_what_fills_the_memory(opened: Open) -> None:
    chrome = opened(_all())
    _press(chrome, "memory", "as captured")
    _press(chrome, "memory", "by op")
    card = _hover(chrome, 3.5 / 7)
    op = chain().ops[3]
    for said in (op.name, op.op, op.module, op.source, "backward", "7.50 KiB", "3.00 KiB", "512 B"):
        assert said in card
    assert chain().ops[1].source in _hover(chrome, 1.5 / 7)


def test_the_plan_is_drawn_and_named(opened: Open) -> None:
    chrome = opened(_all())
    _press(chrome, "memory", "by op")
    card = _hover(chrome, 6.5 / 10)
    assert "op1\nrecompute" in card or "op1recompute" in card
    assert "activations, made again" in card
    assert "activations, packed" in _find(chrome, "#memory .legend")[0].text
    assert {"D55E00", "CC79A7", "009E73"} <= _strip_colours(chrome)


def test_swaps_are_drawn_beside_compute(opened: Open) -> None:
    chrome = opened(ReportInputs(plan=chain_plan(lane="copy")))
    assert "8A5CC2" in _strip_colours(chrome)
    Select(_find(chrome, "#steps select")[0]).select_by_visible_text("swap")
    assert _column(chrome, "steps", 2) == ["offload_op0", "release_op0", "prefetch_op0"]


def test_a_layer_can_be_hidden(opened: Open) -> None:
    chrome = opened(_all())
    _press(chrome, "memory", "parameters")
    assert [item.text for item in _find(chrome, "#memory .legend .off")] == ["parameters"]
    assert console(chrome) == []


def test_tables_sort(opened: Open) -> None:
    chrome = opened(_all())
    assert _column(chrome, "ops", 1) == list("0123456")
    _press(chrome, "ops", "time")
    assert _column(chrome, "ops", 1) == list("6543210")
    (header,) = _find(chrome, "#ops [aria-sort=descending]")
    assert header.text.startswith("time")
    _press(chrome, "ops", "time")
    assert _column(chrome, "ops", 1) == list("0123456")
    _press(chrome, "ops", "phase")
    assert _column(chrome, "ops", 3) == ["backward"] * 3 + ["forward"] * 3 + ["optimizer"]


def test_tables_filter(opened: Open) -> None:
    chrome = opened(_all())
    (search,) = _find(chrome, "#ops .search")
    search.send_keys("LAYERS.1 back")
    assert _column(chrome, "ops", 2) == ["op4"]
    assert _find(chrome, "#ops .tally")[0].text.startswith("1 of 7 rows")
    search.send_keys("nowhere")
    assert _find(chrome, "#ops .rows")[0].text == "No row fits the filter."
    search.clear()
    Select(_find(chrome, "#ops select")[0]).select_by_visible_text("forward")
    assert _column(chrome, "ops", 2) == ["op0", "op1", "op2"]
    Select(_find(chrome, "#steps select")[0]).select_by_visible_text("recompute")
    assert _column(chrome, "steps", 2) == ["op1"]


def test_a_row_leads_to_its_place_in_the_chart(opened: Open) -> None:
    chrome = opened(_all())
    _find(chrome, "#ops .rows .row")[2].click()
    (card,) = _find(chrome, "#memory .card-hover")
    assert card.is_displayed()
    assert chain().ops[2].source in card.text


def test_names_of_ops_are_shown_whole(opened: Open) -> None:
    profile = chain(prefix="a_name_that_goes_on_for_quite_a_while_as_those_of_updates_do_")
    chrome = opened(ReportInputs(profile=profile))
    cut = (
        "return [...document.querySelectorAll('#ops .rows .cell')].filter((c) => c.scrollWidth > c.clientWidth).length"
    )
    assert chrome.execute_script(cut) == 0
    assert profile.ops[0].name in _column(chrome, "ops", 2)


def test_five_thousand_rows_are_few_elements(opened: Open) -> None:
    many = chain(2500)
    chrome = opened(ReportInputs(profile=many))
    count = "return [document.querySelectorAll('#ops .rows .row').length, document.querySelectorAll('*').length]"
    rows, elements = chrome.execute_script(count)
    assert 10 < rows < 40
    assert elements < 2000
    scroll = (
        "const box = document.querySelector('#ops .table'); "
        "box.scrollTop = arguments[0]; box.dispatchEvent(new Event('scroll'))"
    )
    for place, rank in ((27 * 3000, 3000), (10**9, 5000)):
        chrome.execute_script(scroll, place)
        assert f"{rank:,}" in _column(chrome, "ops", 1)
        assert chrome.execute_script(count)[0] < 40
    _press(chrome, "ops", "time")
    assert _column(chrome, "ops", 1)[0] == "5,000"
    assert chrome.execute_script(count)[1] < 2000


def test_names_are_never_executed(opened: Open) -> None:
    profile = chain(prefix=HOSTILE)
    plan = chain_plan(profile)
    chrome = opened(ReportInputs(profile, plan, chain_run(plan, model=profile.model), FRONTIER, SWEEP))
    assert chrome.title == f"{profile.model} · lowtide"
    _press(chrome, "memory", "by op")
    assert HOSTILE in _hover(chrome, 0.5)
    assert HOSTILE in _column(chrome, "ops", 2)[0]
    _find(chrome, "#ops .search")[0].send_keys("<b>")
    assert _find(chrome, "img, b, main script") == []
    assert chrome.execute_script("return window.owned") is None
    assert console(chrome) == []


def test_the_pages_policy_refuses_other_scripts_and_requests(opened: Open) -> None:
    """Were a name ever taken for HTML, the browser would still not run it."""
    chrome = opened(ReportInputs(profile=chain()))
    add = "const s = document.createElement('script'); s.textContent = arguments[0]; document.body.append(s)"
    chrome.execute_script(add, OWNED)
    chrome.execute_script("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    assert chrome.execute_script("return window.owned") is None
    assert sum("Content Security Policy" in line for line in console(chrome)) == 2


def test_narrow_and_dark_windows_are_readable(opened: Open) -> None:
    chrome = opened(_all())
    chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 600, "height": 800, "deviceScaleFactor": 2, "mobile": False}
    )
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= 600
        assert chrome.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        width = chrome.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(document.querySelector('#memory .u-wrap').clientWidth)))"
        )
        assert width <= 600
        assert console(chrome) == []
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
