"""Errors are part of the interface: importable, each also the builtin that people catch, short, one traceback."""

import json
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import lowtide
from lowtide.device.exhausted import is_out_of_memory
from lowtide.errors import shortened, shown
from lowtide.planning.policies import policy
from lowtide.planning.problem_file import load_problem
from lowtide.planning.schedule import load_schedule
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile
from lowtide.training.planned import BudgetUnreachable
from lowtide.units import parse_bytes

KINDS = {
    "BatchMismatch": ValueError,
    "BudgetInfeasible": ValueError,
    "CaptureError": RuntimeError,
    "EagerMismatch": RuntimeError,
    "InputError": ValueError,
    "MissingExtra": ImportError,
    "PlanMismatch": ValueError,
    "ProfileError": RuntimeError,
    "RankFailed": RuntimeError,
    "RewriteError": RuntimeError,
    "StaleCapture": RuntimeError,
    "SwapError": RuntimeError,
}


@pytest.mark.parametrize("name", KINDS)
def test_each_is_exported_and_a_builtin(name: str) -> None:
    error = getattr(lowtide, name)
    assert issubclass(error, KINDS[name])
    assert issubclass(error, lowtide.LowtideError)
    assert name in lowtide.__all__


def test_everything_that_is_exported_is_there() -> None:
    assert lowtide.__all__ == sorted(lowtide.__all__)
    assert all(getattr(lowtide, name) is not None for name in lowtide.__all__)
    assert issubclass(lowtide.PlanMismatch, lowtide.InputError)
    assert issubclass(BudgetUnreachable, lowtide.BudgetInfeasible)


def tracebacks(call: Callable[[], object]) -> int:
    """How many a person sees."""
    with pytest.raises(lowtide.LowtideError) as caught:
        call()
    return "".join(traceback.format_exception(caught.value)).count("Traceback (most recent call last)")


def test_one_traceback_where_another_says_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for text in ("", "{", "[" * 100_000, "{}", '{"format": "lowtide-problem/1"}', '{"format": "lowtide-plan/1"}'):
        file.write_text(text)
        for load in (load_problem, load_schedule, PlanFile.load, Profile.load):
            assert tracebacks(lambda load=load: load(file)) == 1  # type: ignore[misc]
    assert tracebacks(lambda: PlanFile.load(tmp_path / "absent.json")) == 1
    assert tracebacks(lambda: load_problem(tmp_path)) == 1


def test_the_users_own_traceback_stays() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("mine")

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(lowtide.CaptureError, match="ZeroDivisionError: mine") as caught:
        lowtide.capture(model, optimizer, torch.ones(1, 2), loss)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


LONG = "x" * 100_000


def test_no_message_echoes_what_is_long(tmp_path: Path) -> None:
    plain = {"format": "lowtide-problem/1", "name": "n", "storages": [], "ops": []}
    contents = [
        *({**plain, key: LONG} for key in plain),
        {**plain, LONG: 1},
        {"format": "lowtide-plan/1", "plans": LONG},
        {"format": "lowtide-plan/1", LONG: LONG},
        {"format": "lowtide-plan/1", "plans": [{LONG: LONG}]},
        {"format": "lowtide-profile/3", "ops": {LONG: LONG}},
        LONG,
    ]
    file = tmp_path / "file.json"
    calls: list[Callable[[], object]] = [
        lambda: parse_bytes(LONG),
        lambda: parse_bytes("9" * 100_000),
        lambda: parse_bytes("9" * 100_000 + "%", whole=1),
        lambda: parse_bytes([LONG]),  # type: ignore[arg-type]
        lambda: parse_bytes(-(10**5000)),
        lambda: policy(LONG),
        lambda: policy([LONG]),  # type: ignore[arg-type]
    ]
    for content in contents:
        file.write_text(json.dumps(content))
        for load in (load_problem, load_schedule, PlanFile.load, Profile.load):
            with pytest.raises(lowtide.InputError) as caught:
                load(file)
            assert len(str(caught.value)) < 400
    for call in calls:
        with pytest.raises(lowtide.InputError) as caught:
            call()
        assert len(str(caught.value)) < 400
        assert "\n" not in str(caught.value)


def test_what_is_shown_is_one_short_line() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown(10**5000) == "a number too long to print"
    assert len(shown(LONG)) == 60
    assert shortened("a\n  b") == "a b"
    assert shortened("abcdef", 5) == "ab..."


def test_running_out_of_memory_is_told_from_an_error_of_ours() -> None:
    assert is_out_of_memory(RuntimeError("not enough memory: you tried to allocate"))
    assert not is_out_of_memory(lowtide.CaptureError("out of memory is what this op is called"))
    wrapped = lowtide.InputError("build failed")
    wrapped.__cause__ = MemoryError()
    assert is_out_of_memory(wrapped)
