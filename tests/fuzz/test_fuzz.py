"""A few dozen random programs, and tests that the judge, the shrinker and the workers do their work."""

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

import lowtide
from lowtide.errors import CaptureError, RewriteError
from tests.fuzz.build import listing
from tests.fuzz.judge import Outcome, generate, judge, runs_eagerly
from tests.fuzz.kinds import KINDS
from tests.fuzz.losses import LOSSES
from tests.fuzz.program import Piece, Program
from tests.fuzz.shrink import shrink
from tests.fuzz.workers import Worker
from tests.zoo import often

SEEDS = often(range(64), 16)
"""Without a budget, about half a second each on a core of its own."""
SIMPLE = Program(0, (Piece("linear"), Piece("gelu"), Piece("layer_norm")), Piece("cross_entropy"), Piece("adam"))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_but_equal_refused_or_infeasible(seed: int) -> None:
    """Whatever the program, lowtide trains it bit for bit, or says in a sentence why it does not."""
    _check(replace(generate(seed), budget=None))


@pytest.mark.parametrize(("seed", "policy"), [(0, "mutwo"), (9, "optimal"), (13, "chen")])
def test_the_same_within_a_budget(seed: int, policy: str) -> None:
    """Planning takes seconds, so these are few; `make fuzz` runs more."""
    _check(replace(generate(seed), budget="85%", policy=policy))


def _check(program: Program) -> None:
    outcome = judge(program)
    assert not outcome.is_finding, f"{outcome.name} {outcome.detail}\n{listing(program)}\n{program.to_json()}"


def test_there_are_many_kinds() -> None:
    """At least eighty layers and functions, and every loss."""
    assert len(KINDS) >= 80
    assert len(LOSSES) >= 12


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_trained(kind: str) -> None:
    """A kind that eager torch never runs would be drawn for nothing."""
    one = (Program(seed, (Piece("linear"), Piece(kind, seed)), Piece("plain"), Piece("sgd")) for seed in range(20))
    assert any(runs_eagerly(program) for program in one)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_can_be_trained(loss: str) -> None:
    """The same for losses."""
    one = (Program(seed, (Piece("linear"),), Piece(loss, seed), Piece("sgd")) for seed in range(5))
    assert any(runs_eagerly(program) for program in one)


def test_a_seed_is_a_program() -> None:
    """The same every time, and the same when read back."""
    program = generate(3)
    assert program == generate(3)
    assert Program.from_json(program.to_json()) == program
    assert listing(program) == listing(program)


class Sabotaged:
    """A step that does something that it must not do."""

    def __init__(self, step: lowtide.TrainStep, what: str) -> None:
        self._step, self._what = step, what
        self.plan = step.plan
        self.measured_peak = step.measured_peak

    def __call__(self, batch: Any) -> Any:
        loss = self._step(batch)
        if self._what == "parameter":
            with torch.no_grad():
                next(iter(self._step.model.parameters())).view(-1)[0].add_(1e-6)
        elif self._what == "loss":
            loss = loss + 1e-6
        elif self._what == "state":
            next(iter(self._step.optimizer.state.values()))["step"].add_(1)
        elif self._what == "generator":
            torch.rand(1)
        elif self._what == "batch":
            batch["input"].add_(1)
        elif self._what == "mode":
            self._step.model.eval()
        return loss


@pytest.mark.parametrize("what", ["parameter", "loss", "state", "generator", "batch", "mode"])
def test_the_judge_sees_what_is_different(what: str) -> None:
    """One bit of anything is enough."""
    outcome = judge(SIMPLE, lambda *args, **kwargs: Sabotaged(lowtide.train_step(*args, **kwargs), what))
    assert (outcome.name, outcome.is_finding) == ("different", True)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (CaptureError("line 3 does not work: do this"), "refused"),
        (CaptureError("line 3 does not work:\ntwo lines"), "crash"),
        (CaptureError("x" * 1000), "crash"),
        (CaptureError("please report: a bug in lowtide"), "crash"),
        (RewriteError("the order is wrong"), "crash"),
        (KeyError("origin"), "crash"),
    ],
)
def test_an_error_is_one_sentence_of_ours(error: Exception, name: str) -> None:
    """Anything else that is raised is a finding."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    assert judge(SIMPLE, fail).name == name


def test_a_refusal_must_leave_the_model_alone() -> None:
    """An error after something moved is no refusal."""

    def fail(model: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            next(model.parameters()).add_(1)
        raise CaptureError("line 3 does not work: do this")

    assert judge(SIMPLE, fail).name == "damaged"


def test_more_than_the_budget_is_a_finding() -> None:
    """By the allocator's count."""

    def grow(*args: Any, **kwargs: Any) -> Any:
        made = Sabotaged(lowtide.train_step(*args, **kwargs), "nothing")
        assert made.plan is not None
        made.measured_peak = made.plan.budget + 1
        return made

    assert judge(replace(SIMPLE, budget="100%"), grow).name == "overrun"


def test_a_finding_is_made_small() -> None:
    """What does not matter goes: here only one layer does."""
    layers = tuple(Piece(kind) for kind in ("linear", "gelu", "scan", "tanh", "layer_norm"))
    large = replace(SIMPLE, layers=layers, accumulate=2, clip=0.05, dtype="float64")

    def run(program: Program) -> Outcome:
        return Outcome("different" if Piece("scan") in program.layers else "equal")

    small, outcome = shrink(large, Outcome("different"), run=run)
    assert outcome.name == "different"
    assert small == Program(0, (Piece("scan"),), Piece("plain"), Piece("sgd"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "says"), [("os.abort()", "ended with code -6"), ("time.sleep(60)", "longer than"), ("", "code 0")]
)
def test_a_worker_that_dies_is_a_finding(does: str, says: str) -> None:
    """With its seed; the next program gets a new process."""
    worker = Worker(
        (sys.executable, "-c", f"import os, sys, time; sys.stdin.readline(); print('{{}}', flush=True); {does}")
    )
    for seed in (7, 8):
        result = worker.run(seed, 2.0)
        assert (result["seed"], result["name"]) == (seed, "killed")
        assert says in result["detail"]
    worker.close()


def test_a_worker_that_is_used_up_is_replaced() -> None:
    """This one answers once and ends without a program at the next seed, which a new process then takes."""
    once = "seed = int(input()); print('{}'); print(json.dumps({'seed': seed, 'name': 'equal'}), flush=True); input()"
    worker = Worker((sys.executable, "-c", f"import json; {once}"))
    assert [worker.run(seed, 20.0)["seed"] for seed in (1, 2, 3)] == [1, 2, 3]
    worker.close()
