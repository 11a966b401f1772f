"""Runs a program eagerly and through lowtide, and says what came of it."""

import copy
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

import lowtide
from lowtide.errors import EagerMismatch, LowtideError, ProfileError, RewriteError
from tests.equality import differences
from tests.fuzz.build import Batch, InvalidProgram, build, make_batch
from tests.fuzz.changes import CHANGES, Side, undone
from tests.fuzz.kinds import Pick
from tests.fuzz.program import Program, draw

FINE = ("equal", "refused", "infeasible", "unusable")
LONGEST = 900
"""Characters of an error that is still one sentence."""
ON, OFF = 2, 3
"""The calls before which the change is made, and taken back."""
NEAR = 1.03
"""Where a budget is infeasible, the program is planned again for this many times the least peak that was found."""
MakeStep = Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """`equal`, `refused` or `infeasible`; else a finding: `different`, `damaged`, `crash`, `overrun` or `killed`.
    `unusable` are programs that eager torch itself does not survive."""

    name: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        return self.name not in FINE


class _Found(Exception):
    """Ends a run with its outcome."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(name, detail)
        self.outcome = Outcome(name, detail)


class SpentProcess(Exception):
    """oneDNN makes no more kernels in this process, whoever asks: a seed would give another program than elsewhere."""


def generate(seed: int, *, strict: bool = False) -> Program:
    """The first program of this seed that eager torch can run, with finite values; `strict` may raise SpentProcess."""
    for attempt in range(200):
        program = draw(Random(f"{seed}.{attempt}"), seed)
        if runs_eagerly(program, strict=strict):
            return program
    raise InvalidProgram(f"nothing that seed {seed} makes can be run")


def runs_eagerly(program: Program, *, strict: bool = False) -> bool:
    """Whether eager training runs to its end, with finite values all the way."""
    try:
        with _quiet():
            side = build(program)
            with undone(side):
                for call in range(program.calls):
                    _change(program, side, call)
                    _eager_call(program, side, call, _batch(program, call))
                    if not all(x.isfinite().all() for x in _tensors(side)):
                        return False
    except (InvalidProgram, RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        if strict and str(error) == "could not create a primitive":
            raise SpentProcess(str(error)) from error
        return False
    return True


def judge(program: Program, make_step: MakeStep = lowtide.train_step) -> Outcome:
    """What becomes of `program` when lowtide trains it."""
    started = perf_counter()
    with _quiet():
        ours, theirs = build(program), build(program)
        try:
            with undone(ours, theirs):
                _train(program, ours, theirs, make_step)
            outcome = Outcome("equal")
        except _Found as found:
            outcome = found.outcome
    if outcome.name == "different" and not _repeats(program):
        outcome = Outcome("equal", "eager training itself does not repeat")
    return Outcome(outcome.name, outcome.detail, perf_counter() - started)


def _train(program: Program, ours: Side, theirs: Side, make_step: MakeStep) -> None:
    first = _batch(program, 0)

    def make(budget: int | str | None = program.budget) -> Any:
        with _around(program):
            return make_step(
                ours.model,
                ours.trained.optimizer,
                first,
                ours.loss,
                budget=budget,
                policy=program.policy,
                clip_grad_norm=program.clip,
                accumulate=program.accumulate,
                time_limit=0.5,
                progress=False,
            )

    torch.manual_seed(program.seed)
    generator = torch.get_rng_state()
    try:
        step = _guarded(program, ours, make, "capture")
    except _Found as end:
        floor = getattr(end.__cause__, "floor", None)
        if end.outcome.name != "infeasible" or floor is None:
            raise
        step = _guarded(program, ours, lambda: make(int(floor * NEAR)), "capture at the floor")
    _check_undamaged(ours, "capture")
    if any(differences(ours.trained, theirs.trained)):
        raise _Found("damaged", f"after capture: {', '.join(differences(ours.trained, theirs.trained))}")
    if not torch.equal(generator, torch.get_rng_state()):
        raise _Found("damaged", "capture moved torch's random generator")
    for call in range(program.calls):
        _change(program, ours, call)
        _change(program, theirs, call)
        batch, other = _batch(program, call), _batch(program, call)
        _eager_call(program, theirs, call, other)
        generator = torch.get_rng_state()
        _seed(program, call)
        with _around(program):
            ours.trained.loss = _guarded(program, ours, partial(step, batch), f"call {call}")
        _check_undamaged(ours, f"call {call}")
        found = [*differences(ours.trained, theirs.trained), *_more_differences(ours, theirs, batch, other)]
        if not torch.equal(generator, torch.get_rng_state()):
            found.append("the random generator")
        if found:
            raise _Found("different", f"call {call}: {', '.join(found[:8])}")
        if step.plan is not None and step.measured_peak is not None and step.measured_peak > step.plan.budget:
            raise _Found("overrun", f"call {call}: {step.measured_peak} bytes, {step.plan.budget} were allowed")


def _guarded(program: Program, side: Side, run: Callable[[], Any], when: str) -> Any:
    """The result, or the outcome that the error stands for; a refusal leaves everything as it was."""
    before = [(x, x.detach().clone()) for x in _tensors(side)]
    held = [(type(m), sorted(vars(m)), list(m._parameters), list(m._buffers)) for m in side.model.modules()]
    try:
        return run()
    except Exception as error:
        text = str(error)
        meant = isinstance(error, LowtideError) and not isinstance(error, RewriteError | ProfileError | EagerMismatch)
        if not meant or "\n" in text or len(text) > LONGEST or "a bug in lowtide" in text:
            shown = "".join(traceback.format_exception(error))
            raise _Found("crash", f"{when}: {type(error).__name__}: {text[:LONGEST]}\n{shown[-3000:]}") from error
        _check_undamaged(side, f"refused at {when}")
        now = [(type(m), sorted(vars(m)), list(m._parameters), list(m._buffers)) for m in side.model.modules()]
        moved = any(x is not y or not torch.equal(x, was) for y, (x, was) in zip(_tensors(side), before, strict=True))
        if moved or now != held:
            raise _Found("damaged", f"refused at {when}, but the model has changed: {text}") from error
        if isinstance(error, lowtide.BudgetInfeasible):
            raise _Found("infeasible" if program.budget else "crash", text) from error
        raise _Found("refused", f"{when}: {text}") from error


def _tensors(side: Side) -> list[Tensor]:
    """Parameters, buffers and optimizer state, and the loss that is there."""
    state = [x for x in pytree.tree_leaves(list(side.trained.optimizer.state.values())) if isinstance(x, Tensor)]
    losses = [x for x in pytree.tree_leaves(side.trained.loss) if isinstance(x, Tensor)]
    return [*side.model.parameters(), *side.model.buffers(), *state, *losses]


def _check_undamaged(side: Side, when: str) -> None:
    held = [x for m in side.model.modules() for x in pytree.tree_leaves(list(vars(m).values()))]
    if any(isinstance(x, FakeTensor) for x in [*_tensors(side), *held]):
        raise _Found("damaged", f"{when}: a FakeTensor is left in the model or its optimizer")


def _more_differences(ours: Side, theirs: Side, batch: Batch, other: Batch) -> Iterator[str]:
    """What `differences` does not look at: the batch, what forward did in Python, modes, names."""
    for name, x in batch.items():
        if not torch.equal(x, other[name]):
            yield f"the batch's {name}"
    for (path, mine), (_, yours) in zip(ours.model.named_modules(), theirs.model.named_modules(), strict=True):
        if mine.training != yours.training:
            yield f"training of {path}"
        calls, eager_calls = getattr(mine, "calls", None), getattr(yours, "calls", None)
        if isinstance(calls, list) and isinstance(eager_calls, list):
            calls, eager_calls = len(calls), len(eager_calls)
        if calls != eager_calls:
            yield f"calls of {path}: {calls}, eager {eager_calls}"


def _around(program: Program) -> AbstractContextManager[Any]:
    """Autocast around the call, where the program says so; backward stands outside, as in everybody's loop."""
    return torch.autocast("cpu", torch.bfloat16) if program.dtype == "autocast_around" else nullcontext()


def _batch(program: Program, call: int) -> Batch:
    return make_batch(program, call, changed=call == ON)


def _seed(program: Program, call: int) -> None:
    torch.manual_seed(100 * program.seed + call)
    random.seed(100 * program.seed + call)


def _change(program: Program, side: Side, call: int) -> None:
    if program.change is None:
        return
    if call == ON:
        side.undo = CHANGES[program.change.kind](side, Pick(program.change.seed))
    elif call == OFF and side.undo is not None:
        side.undo()
        side.undo = None


def _eager_call(program: Program, side: Side, call: int, batch: Batch) -> None:
    """What a user writes: zero, backward, and at every k-th call clip and step, gradients cleared behind it."""
    trained, place = side.trained, call % program.accumulate
    _seed(program, call)
    if place == 0:
        trained.optimizer.zero_grad(set_to_none=True)
    with _around(program):
        trained.loss = side.loss(trained.model, batch)
    (trained.loss[0] if isinstance(trained.loss, tuple) else trained.loss).backward()
    if place == program.accumulate - 1:
        if program.clip is not None:
            torch.nn.utils.clip_grad_norm_(trained.model.parameters(), program.clip)
        trained.optimizer.step()
        trained.optimizer.zero_grad(set_to_none=True)


def _repeats(program: Program) -> bool:
    """Whether eager training gives the same twice."""
    with _quiet():
        sides = build(program), build(program)
        with undone(*sides):
            for call in range(program.calls):
                for side in sides:
                    _change(program, side, call)
                    _eager_call(program, side, call, _batch(program, call))
                if any(differences(copy.copy(sides[0].trained), sides[1].trained)):
                    return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are not judged: torch warns about some layers, and pytest would raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
