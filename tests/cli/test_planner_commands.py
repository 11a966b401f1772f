"""`lowtide schedule`, `frontier` and `bench planner`: files, exit codes, and nothing written on failure."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.planning.policies import policy
from lowtide.planning.problem_file import save_problem
from lowtide.planning.schedule import load_schedule, verify
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks

PROBLEM = repeated_blocks(4)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lowtide", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        code = stopped.value.code
        captured = capsys.readouterr()
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return call


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    save_problem(PROBLEM, folder / "problem.json")
    return folder / "problem.json"


def test_schedule_writes_a_plan_within_the_budget(run: Run, problem_file: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "s.json", tmp_path / "addresses.png"
    words = ("--budget", "80%", "--policy", "mutwo", "--out", out, "--addresses", picture)
    code, stdout, _ = run("schedule", problem_file, *words)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    schedule = load_schedule(out)
    verify(PROBLEM, schedule)
    whole = simulate(PROBLEM, PROBLEM.program).peak
    assert simulate(PROBLEM, schedule.ops).peak <= 0.8 * whole + 1
    assert "mutwo" in stdout
    assert "overhead" in stdout


def test_schedule_refuses_to_overwrite_unless_forced(run: Run, problem_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    out.write_text("mine")
    arguments = ("schedule", problem_file, "--budget", "100%", "--policy", "keep_all", "--out", out)
    code, _, stderr = run(*arguments)
    assert code == 2
    assert "is there already" in stderr
    assert out.read_text() == "mine"
    assert run(*arguments, "--force")[0] == 0
    assert load_schedule(out).ops == PROBLEM.program


@pytest.mark.parametrize("name", ["mutwo", "chen", "keep_all"])
def test_a_budget_that_is_not_reached_is_exit_code_3(run: Run, problem_file: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "s.json"
    code, stdout, stderr = run("schedule", problem_file, "--budget", "1KiB", "--policy", name, "--out", out)
    assert code == 3
    assert stdout == ""
    assert stderr.startswith("lowtide: no schedule was found (nor proven impossible) within 1.00 KiB (1024 bytes)")
    assert stderr.count("\n") == 1
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "many"), "is no size"),
        (("--budget", "120%"), "at most 100% of the program order's peak"),
        (("--budget", "0"), "more than zero"),
        (("--budget", "50%", "--policy", "best"), "there is no policy 'best'"),
        (("--budget", "50%", "--time-limit", "nan"), "time limit"),
        (("--budget", "50%", "--time-limit", "-1"), "time limit"),
        (("--budget", "50%", "--seed", "-1"), "seed"),
    ],
)
def test_bad_options_are_exit_code_2(
    run: Run, problem_file: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    out = tmp_path / "s.json"
    code, _, stderr = run("schedule", problem_file, "--policy", "mutwo", *options, "--out", out)
    assert code == 2
    assert words in stderr
    assert not out.exists()


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "{}",
        '{"format": "lowtide-problem/9"}',
        '{"format": "lowtide-problem/1", "name": "", "storages": [{"bytes": -1}], "ops": []}',
        '{"format": "lowtide-problem/1", "name": "", "storages": [{"bytes": 1}], "ops": []}',
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("command", ["schedule", "frontier", "bench"])
def test_a_bad_file_is_one_line_and_exit_code_2(run: Run, tmp_path: Path, content: str, command: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    out = tmp_path / "out"
    arguments = {
        "schedule": ("schedule", bad, "--budget", "50%", "--policy", "mutwo", "--out", out),
        "frontier": ("frontier", bad, "--out", out),
        "bench": ("bench", "planner", bad, "--policies", "mutwo", "--out", out),
    }[command]
    code, stdout, stderr = run(*arguments)
    assert code == 2
    assert stdout == ""
    assert stderr.startswith("lowtide: ")
    assert stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("out", ["absent/s.json", "in"])
def test_a_place_that_cannot_be_written_is_said_before_planning(
    run: Run, problem_file: Path, tmp_path: Path, out: str
) -> None:
    code, _, stderr = run("schedule", problem_file, "--budget", "50%", "--policy", "mutwo", "--out", tmp_path / out)
    assert code == 2
    assert stderr.count("\n") == 1


def test_bench_prints_and_writes_the_table(run: Run, problem_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench"
    arguments = ("bench", "planner", problem_file, "--policies", "mutwo,chen", "--budgets", "90%,1KiB", "--out", out)
    code, stdout, _ = run(*arguments, "--scaling", "500")
    assert code == 0
    assert "not reached" in stdout
    rows = table(out / "planner.csv")
    assert [(row["budget"], row["policy"]) for row in rows] == [
        ("90%", "mutwo"),
        ("90%", "chen"),
        ("1KiB", "mutwo"),
        ("1KiB", "chen"),
    ]
    assert float(rows[0]["overhead"]) > 0
    assert rows[2]["overhead"] == ""
    assert [row["ops"] for row in table(out / "scaling.csv")] == ["484", "484"]
    assert (out / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert run(*arguments)[0] == 2


def test_bench_without_anything_to_measure(run: Run, tmp_path: Path) -> None:
    code, _, stderr = run("bench", "planner", "--out", tmp_path / "bench")
    assert code == 2
    assert "nothing to measure" in stderr


def test_frontier_writes_csv_and_picture(
    run: Run, problem_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the planner: what is tested here is what becomes of its plans."""

    class Frontier:
        def frontier(self, problem: object, **_: object) -> list[object]:
            whole = simulate(PROBLEM, PROBLEM.program).peak
            return [policy("mutwo").plan(PROBLEM, whole * share // 10) for share in (10, 9, 8)]

    monkeypatch.setattr("lowtide.cli.frontier.frontier_policy", Frontier)
    out = tmp_path / "frontier"
    code, stdout, _ = run("frontier", problem_file, "--out", out)
    assert code == 0
    rows = table(out / "frontier.csv")
    assert len(rows) == 3
    assert [float(row["overhead"]) for row in rows] == sorted(float(row["overhead"]) for row in rows)
    assert "overhead" in stdout
    assert (out / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert run("frontier", problem_file, "--out", out)[0] == 2


def test_the_command_line_does_not_import_torch() -> None:
    code = "import sys, json, lowtide.cli; print(json.dumps([m for m in ('torch', 'matplotlib') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_bench_leaves_out_stages_in_turn(run: Run, problem_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench"
    arguments = ("bench", "planner", problem_file, "--budgets", "80%", "--time-limit", "0.1", "--out", out)
    code, stdout, _ = run(*arguments, "--without", "several instants, policies + walks")
    assert code == 0
    assert "nothing" in stdout
    names = ["optimal", "optimal without several instants", "optimal without policies + walks"]
    assert [row["policy"] for row in table(out / "planner.csv")] == names
    code, _, stderr = run(*arguments, "--without", "thinking", "--force")
    assert code == 2
    assert "there is no stage 'thinking'" in stderr


def test_bench_by_counted_work_alone_is_the_same_again(run: Run, problem_file: Path, tmp_path: Path) -> None:
    arguments = ("bench", "planner", problem_file, "--budgets", "80%,70%", "--time-limit", "0.5", "--counted")
    found = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert run(*arguments, "--out", out)[0] == 0
        found.append([{k: v for k, v in row.items() if k != "seconds"} for row in table(out / "planner.csv")])
    assert found[0] == found[1]
    assert {row["policy"] for row in found[0]} == {"optimal"}
