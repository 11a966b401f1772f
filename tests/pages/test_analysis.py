"""docs/analysis.md is what the records under reports/ say, and names in it are only names."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.experiments.predictions.run import predictions
from lowtide.pages.analysis.cells import plain
from lowtide.pages.analysis.page import analysis_page
from lowtide.pages.analysis.surprises import batch_surprise
from tests.cli.running import run_main
from tests.experiments.records import largest, policies, sweep, ways
from tests.reporting.synthetic import chain

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "analysis.md"
NASTY = "<script>alert(1)</script> | `x` [y](z) *b* {{ 7 * 7 }}"


def test_the_committed_page_is_what_the_command_makes() -> None:
    made = analysis_page(ROOT / "reports", predictions(ROOT / "reports"), PAGE)
    assert PAGE.read_text(encoding="utf-8") == made, "run `make analysis`"


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    for name in ("profile", "sweep", "policies", "largest", "swap"):
        (folder / name).mkdir(parents=True)
    chain(prefix=NASTY, model=NASTY).save(folder / "profile" / "profile.json")
    sweep(NASTY, why=NASTY).save(folder / "sweep" / "sweep.json")
    found = policies(NASTY)
    found.save(folder / "policies" / "policies.json")
    largest(NASTY).save(folder / "largest" / "largest.json")
    ways(NASTY).save(folder / "swap" / "swap.json")
    return folder


def test_every_kind_of_record_is_shown(reports: Path, tmp_path: Path) -> None:
    page = analysis_page(reports, predictions(reports), tmp_path / "page.md")
    assert not re.findall(r"^No .* is there\.$", page, re.MULTILINE)
    for words in (
        "| 4 | 1000.0 MiB | 600.0 MiB | 40.0% | 5 | 7 | 2 | 0 | yes |",
        "| 8 | 600.0 MiB | infeasible | - |",
        "| 16 | out of memory | 600.0 MiB | - | 5 |",
        "| 4 | 9.5 ms | 11.0 ms | +15.8% (+11% to +20%) | +10.0% | +5.0% | +10.5% |",
        "| optimal | 500 B | 490 B | +20.0% |",
        "| keep_all | 500 B | no plan |",
        "| 900.0 MiB | 4 | 16 | 8 | 1000.0 MiB, measured without the limit | 600.0 MiB | 40.0% |",
        "[sweep/sweep.json](reports/sweep/sweep.json)",
        "at batch size 4: 40.0% less memory, step time +15.8% (+11% to +20%): [sweep/sweep.json]",
        "all losses equal eager's at 1 of 1 batch sizes",
        "batches of 16 instead of 4, 4.0 times as large",
        "in 500 B: optimal pays +20.0%, recomputing 7 activations; mutwo pays +3000.0%, recomputing 7 activations",
        "| mutwo | 500 B | not run | +3000.0% | too slow to run |",
        "| 50% | recompute only | 600.0 MiB | +20.0% (+20% to +20%) | +10.0% | +20.0% | +0.0% | +0.0% | +0.0% | 0 B |",
        "| 50% | swap only | no plan | - |",
        "| 50% | both | 590.0 MiB | +10.0% (+10% to +10%) | +10.0% | +0.0% | +0.0% | +5.0% | +2.0% | 30.0 MiB |",
        "compute loses 0.40 ms for every MiB out and back",
        "No peak was predicted worse than by +1.695%",
        "from 900 B to the floor at 500 B the price goes from +0.0% to +20.0% (predicted)",
        "in 500 B: mutwo pays 150.0 times the extra time of optimal, +3000.0% (predicted)",
        "measured less predicted is +3.6 points in the median of 1 plans, from +3.6 to +3.6",
        "at batch size 16: eager would need",
    ):
        assert words in page, words


def test_names_are_only_names(reports: Path, tmp_path: Path) -> None:
    page = analysis_page(reports, predictions(reports), tmp_path / "page.md")
    assert "<script" not in page.replace("\\<script", "")
    assert plain(NASTY) in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table


def test_the_command_writes_it_once(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    assert run_main(monkeypatch, "analysis", reports, "--out", page) == 0
    assert page.read_text() == analysis_page(reports, predictions(reports), page)
    assert run_main(monkeypatch, "analysis", reports, "--out", page) == 2
    assert run_main(monkeypatch, "analysis", reports, "--out", page, "--force") == 0


def test_a_plan_that_was_faster_in_every_round_is_a_surprise() -> None:
    found = sweep()
    (pair, *_) = found.pairs
    slower = replace(pair, plain=replace(pair.plain, ms=tuple(2 * ms for ms in pair.plain.ms)))
    said = list(batch_surprise(replace(found, pairs=(slower,))))
    assert len(said) == 1
    assert "at batch size 4: every round was faster with the plan than without. Recomputing takes +5.3%" in said[0]
    assert not list(batch_surprise(replace(found, pairs=(pair,))))
