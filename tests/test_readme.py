"""The README's figures are those of the committed records, and its files and commands exist."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.pages.planner_table import planner_table, scaling_table
from lowtide.pages.readme import budgets_table, cost_table, limits_table, swap_table, sweep_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_cost_table_is_the_measured_one() -> None:
    assert cost_table(ROOT / "reports" / "bench") in README


def test_the_table_of_budgets_is_the_measured_one() -> None:
    assert budgets_table(ROOT / "reports" / "budgets") in README


def test_the_table_of_swaps_is_the_measured_one() -> None:
    assert swap_table(ROOT / "reports" / "swap") in README


def test_the_table_of_limits_is_the_measured_one() -> None:
    assert limits_table(ROOT / "reports" / "largest") in README


def test_the_table_of_batch_sizes_is_the_measured_one() -> None:
    assert sweep_table(ROOT / "reports" / "sweep") in README


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^lowtide (\w+)", README, re.MULTILINE))))
def test_commands_exist(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0


def test_options_exist() -> None:
    for command, words in re.findall(r"^lowtide (\w+) (.*)$", README, re.MULTILINE):
        part = [words.split()[0]] if command in ("animate", "bench") else []
        shown = CliRunner().invoke(app, [command, *part, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[\w-]+", words):
            assert option in re.sub(r"\x1b\[[0-9;]*m", "", shown), (command, option)


def test_the_planners_tables_are_the_measured_ones() -> None:
    page = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    assert planner_table(ROOT / "reports" / "planner") in page
    assert scaling_table(ROOT / "reports" / "planner") in page
