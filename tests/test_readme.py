"""README and docs: short, code that runs, figures of the committed records, links and commands that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import InputError
from lowtide.pages.planner_table import planner_table, scaling_table
from lowtide.pages.readme import with_tables

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md")))
}
MOST_WORDS = 900
TABLES = {
    "README.md": {"results"},
    "docs/compile.md": {"compile", "compile-answers"},
    "docs/distributed.md": {"parallel"},
    "docs/fit.md": {"fit-public", "fit-public-errors", "fit-plans", "fit-longest", "fit-kinds", "fit-steps"},
    "docs/results.md": {"largest", "sweep", "budgets", "swap", "capture", "startup", "process"},
}
COMMANDS = sorted({line for text in PAGES.values() for line in re.findall(r"^lowtide \w.*$", text, re.MULTILINE)})


def words(page: str) -> int:
    """What a person reads: prose, lists and tables; not code blocks, pictures, comments and the targets of links."""
    for unread in (r"```.*?```", r"<!--.*?-->", r"!\[[^\]]*\]\([^)]*\)", r"(?<=\])\([^)]*\)"):
        page = re.sub(unread, " ", page, flags=re.DOTALL)
    return len(re.findall(r"\S*\w\S*", page))


def test_the_readme_is_short() -> None:
    assert (
        words("One `two` [three](four/five.md) ![six](seven.png)\n\n| 3.1 GiB | - |\n|---|---|\n```\neight\n```") == 5
    )
    assert words(README) <= MOST_WORDS


def test_the_readme_has_one_picture_and_one_table() -> None:
    assert len(re.findall(r"!\[", README)) == 1
    assert len(re.findall(r"^\|[-|]+\|$", README, re.MULTILINE)) == 1


@pytest.mark.parametrize("page", TABLES)
def test_tables_are_the_measured_ones(page: str) -> None:
    assert set(re.findall(r"<!-- table ([\w-]+) -->", PAGES[page])) == TABLES[page]
    assert with_tables(PAGES[page], ROOT / "reports") == PAGES[page], "make analysis writes them anew"
    emptied = re.sub(r"(?<=-->\n)\|.*?\|\n(?=<!-- end)", "", PAGES[page], flags=re.DOTALL)
    assert emptied != PAGES[page]
    assert with_tables(emptied, ROOT / "reports") == PAGES[page]


def test_a_table_that_nobody_writes_is_refused() -> None:
    with pytest.raises(InputError, match="there is no table 'nothing': write one of results, largest"):
        with_tables("<!-- table nothing -->\n<!-- end of table -->", ROOT / "reports")


def test_the_planners_tables_are_the_measured_ones() -> None:
    page = PAGES["docs/planner.md"]
    assert planner_table(ROOT / "reports" / "planner") in page
    assert scaling_table(ROOT / "reports" / "planner") in page


def complete_loop() -> str:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "checkpoint" in block]
    return str(code)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "loop"}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_loop_runs_and_resumes_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after two epochs and started again it ends with the model of eager training in one go."""
    code = complete_loop()
    for place in ("resumed", "eager"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "resumed")
    run(code.replace("range(start, 4)", "range(start, 2)"))
    resumed = run(code)
    assert resumed["start"] == 2
    assert resumed["step"].plan.rewritten
    assert resumed["step"].measured_peak <= resumed["step"].plan.budget
    monkeypatch.chdir(tmp_path / "eager")
    eager = run(code.replace("step = lowtide.train_step(", "step = Eager(").replace("import lowtide\n", EAGER))
    mine, theirs = (names["model"].state_dict() for names in (resumed, eager))
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


EAGER = """
class Eager:
    measured_peak = 0

    def __init__(self, model, optimizer, batch, loss, budget):
        self.parts = model, optimizer, loss

    def __call__(self, batch):
        model, optimizer, loss = self.parts
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        return value.detach()
"""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[page])):
        if not target.startswith("https://"):
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("command", sorted({line.split()[1] for line in COMMANDS}))
def test_commands_exist(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0


def test_options_exist() -> None:
    for line in COMMANDS:
        command, *rest = line.split("#")[0].split()[1:]
        part = rest[:1] if command in ("animate", "bench") else []
        shown = CliRunner().invoke(app, [command, *part, "--help"], env={"COLUMNS": "200"}).output
        for option in (word for word in rest if word.startswith("--")):
            assert option in re.sub(r"\x1b\[[0-9;]*m", "", shown), (command, option)


def test_options_are_really_looked_for() -> None:
    assert {"train", "profile", "report", "sweep", "largest", "schedule", "frontier"} <= {
        c.split()[1] for c in COMMANDS
    }
    assert sum("--" in line for line in COMMANDS) > 10


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)", "\n".join(PAGES.values())))))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
