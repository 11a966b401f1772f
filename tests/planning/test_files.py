"""Problem and schedule files: what is written is read again, what is wrong is said in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.planning import reading
from lowtide.planning.problem import Op, Problem, ProblemError, Storage
from lowtide.planning.problem_file import load_problem, save_problem
from lowtide.planning.schedule import Schedule, ScheduleError, load_schedule, save_schedule
from tests.planning.strategies import problems


def example() -> dict[str, Any]:
    """A fresh problem file's content, to be spoiled."""
    return {
        "format": "lowtide-problem/1",
        "name": "example",
        "storages": [{"bytes": 8, "resident": True}, {"bytes": 4}, {"bytes": 2, "keep": True}, {"bytes": 1}],
        "ops": [
            {"name": "a", "time": 3, "reads": [0], "writes": [1]},
            {"name": "b", "time": 1.5, "reads": [1], "writes": [2], "workspace": 5, "once": True},
            {"name": "pack", "time": 1, "reads": [1], "writes": [3], "optional": True},
            {"name": "unpack", "time": 1, "reads": [3], "writes": [1], "optional": True},
        ],
    }


def written(folder: Path, content: object) -> Path:
    path = folder / "problem.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_reads_what_the_format_says(tmp_path: Path) -> None:
    problem = load_problem(written(tmp_path, example()))
    assert problem.storages[0] == Storage(8, resident=True)
    assert problem.ops[1] == Op("b", 1.5, (1,), (2,), workspace=5, once=True)
    assert problem.program == (0, 1)
    assert problem.producers[1] == (0, 3)
    assert (problem.resident_bytes, problem.base_time, problem.kept) == (8, 4.5, (2,))


@settings(max_examples=50)
@given(problem=problems())
def test_a_problem_survives_the_disk(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("problem") / "p.json"
    save_problem(problem, path)
    assert load_problem(path) == problem
    version = 2 if problem.in_place else 1
    assert json.loads(path.read_text())["format"] == f"lowtide-problem/{version}"


def test_lanes_and_off_device_storages_are_version_2(tmp_path: Path) -> None:
    problem = Problem(
        "lanes",
        (Storage(8, name="x"), Storage(8, off_device=True)),
        (Op("a", 1, (), (0,)), Op("out", 2, (0,), (1,), optional=True, lane="copy")),
    )
    path = tmp_path / "p.json"
    save_problem(problem, path)
    assert json.loads(path.read_text())["format"] == "lowtide-problem/2"
    assert load_problem(path) == problem
    path.write_text(path.read_text().replace("problem/2", "problem/1"))
    with pytest.raises(ProblemError, match="unknown key 'off_device'"):
        load_problem(path)


def test_an_op_that_runs_in_place_is_version_2(tmp_path: Path) -> None:
    problem = Problem("in place", (Storage(8), Storage(8)), (Op("a", 1, (), (0,)), Op("relu", 2, (0,), (1,), reuses=0)))
    path = tmp_path / "p.json"
    save_problem(problem, path)
    assert json.loads(path.read_text())["format"] == "lowtide-problem/2"
    assert load_problem(path) == problem
    path.write_text(path.read_text().replace("problem/2", "problem/1"))
    with pytest.raises(ProblemError, match="unknown key 'reuses'"):
        load_problem(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reuses": "0"}, "'reuses' of op 1 must be a whole number, not '0'"),
        ({"reuses": True}, "'reuses' of op 1 must be a whole number, not True"),
        ({"reuses": 9}, "op 1 ('relu') reuses storage 9, which it does not read"),
        ({"reuses": 1}, "op 1 ('relu') reuses storage 1, which is resident"),
        ({"reuses": 4}, "op 1 ('relu') reuses storage 4, which is off the device"),
        ({"reuses": 0, "writes": []}, "op 1 ('relu') reuses storage 0, so it must write exactly one storage, not 0"),
        ({"reuses": 0, "writes": [3]}, "op 1 ('relu') reuses storage 0 for storage 3, which is not of the same bytes"),
    ],
)
def test_an_op_that_cannot_run_in_place_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    content = {
        "format": "lowtide-problem/2",
        "storages": [
            {"bytes": 8},
            {"bytes": 8, "resident": True},
            {"bytes": 8},
            {"bytes": 4},
            {"bytes": 8, "off_device": True},
        ],
        "ops": [
            {"name": "a", "time": 1, "reads": [], "writes": [0, 4]},
            {"name": "relu", "time": 1, "reads": [0, 1, 4], "writes": [2]} | changes,
            {"name": "b", "time": 1, "reads": [], "writes": list({2, 3} - set(changes.get("writes", [2])))},
        ],
    }
    with pytest.raises(ProblemError) as raised:
        load_problem(written(tmp_path, content))
    assert words in str(raised.value)


def spoiled(**changes: Any) -> dict[str, Any]:
    return example() | changes


def op(**changes: Any) -> dict[str, Any]:
    """The example with its op 0 changed."""
    content = example()
    content["ops"][0] |= changes
    return content


def storage(index: int, **changes: Any) -> dict[str, Any]:
    content = example()
    content["storages"][index] |= changes
    return content


def without(kind: str, index: int, key: str) -> dict[str, Any]:
    content = example()
    del content[kind][index][key]
    return content


def extra_op(**fields: Any) -> dict[str, Any]:
    content = example()
    content["ops"].append({"name": "x", "time": 1, "reads": [], "writes": []} | fields)
    return content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[1, 2]", "must hold a JSON object, not a list"),
        ("[" * 200_000, "nested too deeply"),
        ('{"format": NaN}', "NaN is no number"),
        ('{"format": 1' + "0" * 5000 + "}", "is not JSON"),
        ({}, "it has no format"),
        (spoiled(format="lowtide-problem/3"), "format 'lowtide-problem/3'; lowtide-problem/1 or lowtide-problem/2"),
        (spoiled(format=["lowtide-problem/1"]), "it has format ['lowtide-problem/1']"),
        (spoiled(name=3), "'name' of the file must be text"),
        (spoiled(ops={}), "'ops' of the file must be a list, not an object"),
        (spoiled(ops=[]), "the program has no ops"),
        (spoiled(ops=[7]), "op 0 must be a JSON object, not a number"),
        (spoiled(storages=None), "'storages' of the file must be a list, not null"),
        ({"format": "lowtide-problem/1", "ops": []}, "the file has no 'storages'"),
        (without("ops", 0, "time"), "op 0 has no 'time'"),
        (without("ops", 1, "reads"), "op 1 has no 'reads'"),
        (without("storages", 1, "bytes"), "storage 1 has no 'bytes'"),
        (op(time=-1), "the time of op 0 must be between 0 and 10^18, not -1"),
        (op(time=1e300), "the time of op 0 must be between"),
        (op(time="3"), "the time of op 0 must be a number, not '3'"),
        (op(time=True), "the time of op 0 must be a number, not True"),
        (op(workspace=2**70), "the workspace of op 0 must be between 0 and 2^60 bytes"),
        (op(workspace=-5), "the workspace of op 0"),
        (op(name=["a"]), "'name' of op 0 must be text, not a list"),
        (op(once="yes"), "'once' of op 0 must be true or false, not 'yes'"),
        (op(optional=1), "'optional' of op 0 must be true or false, not 1"),
        (op(reads=[True]), "'reads' of op 0 must hold whole numbers, not True"),
        (op(reads=[0.0]), "'reads' of op 0 must hold whole numbers, not 0.0"),
        (op(reads=[99]), "op 0 ('a') reads storage 99, but there are 4 storages"),
        (op(reads=[-1]), "op 0 ('a') reads storage -1"),
        (op(writes=[4]), "op 0 ('a') writes storage 4"),
        (op(writes=[1, 1]), "op 0 ('a') writes storage 1 twice"),
        (op(writes=[1, 2]), "storage 2 is written by both op 0 ('a') and op 1 ('b')"),
        (op(writes=[0, 1]), "op 0 ('a') writes storage 0, which is resident"),
        (op(writes=[]), "op 1 ('b') reads storage 1 which only optional ops write: that order cannot run"),
        (op(reads=[2]), "op 0 ('a') reads storage 2 before op 1 ('b') writes it: that order cannot run"),
        (op(reads=[1]), "op 0 ('a') both reads and writes storage 1"),
        (op(worksapce=3), "op 0 has the unknown key 'worksapce'"),
        (op(lane="copy"), "op 0 has the unknown key 'lane'"),
        (storage(1, bytes=-4), "the size of storage 1 must be between 0 and 2^60 bytes, not -4"),
        (storage(1, bytes=4.5), "the size of storage 1 must be a whole number of bytes, not 4.5"),
        (storage(1, bytes=True), "the size of storage 1 must be a whole number of bytes, not True"),
        (storage(1, bytes=10**400), "the size of storage 1 must be between"),
        (storage(0, resident=False), "storage 0 is not resident and no op writes it"),
        (storage(3, keep=True), "storage 3 must be kept, but only optional ops write it"),
        (
            spoiled(storages=[{"bytes": 2**60, "resident": True}, {"bytes": 4}, {"bytes": 2}, {"bytes": 1}]),
            "the storages together are larger than 2^60 bytes",
        ),
        (extra_op(writes=[4]), "writes storage 4, but there are 4 storages"),
    ],
)
def test_a_bad_file_is_one_clear_sentence(tmp_path: Path, content: object, words: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as raised:
        load_problem(path)
    message = str(raised.value)
    assert words in message
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 400


def test_optional_ops_that_wait_for_each_other_are_a_cycle(tmp_path: Path) -> None:
    content = example()
    content["storages"] += [{"bytes": 1}, {"bytes": 1}]
    content["ops"] += [
        {"name": "hen", "time": 1, "reads": [5], "writes": [4], "optional": True},
        {"name": "egg", "time": 1, "reads": [4], "writes": [5], "optional": True},
    ]
    with pytest.raises(ProblemError, match=r"op 4 \('hen'\) can never run: .*cycle"):
        load_problem(written(tmp_path, content))


def test_a_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILE_LIMIT", 2**20)
    path = written(tmp_path, json.dumps(example()) + " " * 2**20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        load_problem(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        load_problem(tmp_path / "absent.json")
    with pytest.raises(InputError, match="cannot read"):
        load_problem(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not JSON"):
        load_problem(tmp_path / "binary")


@settings(max_examples=60)
@given(content=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists))
def test_junk_never_escapes_as_another_error(content: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Junk in every place of an otherwise good file: a ProblemError or a good problem."""
    folder = tmp_path_factory.getbasetemp()
    for key in ("time", "reads", "writes", "workspace", "once", "optional", "name"):
        for spoilt in (op(**{key: content}), storage(1, bytes=content, keep=content), spoiled(storages=content)):
            try:
                load_problem(written(folder, spoilt))
            except InputError as error:
                assert "\n" not in str(error)  # noqa: PT017 - both ways out are right


def test_a_schedule_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    save_schedule(Schedule((0, 1, 0, 2)), path)
    assert json.loads(path.read_text()) == {"format": "lowtide-schedule/1", "ops": [0, 1, 0, 2]}
    assert load_schedule(path) == Schedule((0, 1, 0, 2))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"format": "lowtide-problem/1", "ops": []}, "format 'lowtide-problem/1'"),
        ({"format": "lowtide-schedule/1"}, "the file has no 'ops'"),
        ({"format": "lowtide-schedule/1", "ops": [0, "1"]}, "must hold whole numbers, not '1'"),
        ({"format": "lowtide-schedule/1", "ops": [False]}, "must hold whole numbers, not False"),
    ],
)
def test_a_bad_schedule_is_one_clear_sentence(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        load_schedule(written(tmp_path, content))
    assert words in str(raised.value)
