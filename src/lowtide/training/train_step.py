"""`lowtide.train_step`: one call, one training iteration, inside a number of bytes."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from lowtide.device.arena import Layout, StepCounts, arena_for, describe_arena
from lowtide.device.limit import trim
from lowtide.device.meter import Meter, meter_for
from lowtide.errors import EagerMismatch, InputError, ProfileError
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.shards import local, whole
from lowtide.optimizer.update import Ledger, Micro, describe, is_separable, state_tensors
from lowtide.parallel.ranks import Ranks
from lowtide.parallel.spread import refuse_silent_ranks, spread_of
from lowtide.profiling.untouched import PutAside
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile, StepPlan
from lowtide.tracing.loss import Loss, model_loss
from lowtide.tracing.refusals import refuse_types
from lowtide.tracing.source import user_line
from lowtide.tracing.wrappers import unwrapped
from lowtide.training.check import Checked, check_step
from lowtide.training.failure import describe_failure
from lowtide.training.making import Forms
from lowtide.training.options import Options
from lowtide.training.pipeline import told
from lowtide.training.planned import Planned
from lowtide.training.prepared import Prepared
from lowtide.training.sentinel import Watched, check_schedule, eager_loss, first_difference
from lowtide.training.undo import Undo, undo_bytes
from lowtide.units import format_bytes
from lowtide.watching.settings import optimizer_settings

log = logging.getLogger(__name__)

TOLERANCE = 0.01
"""A measured peak that differs from the predicted one by more is reported."""

_GIVEN = {"model", "optimizer", "loss", "options"}


@dataclass
class Measured:
    """What the last step took."""

    peak: int | None = None
    """The most device bytes at once; None where nothing could measure it."""
    norm: Tensor | None = None
    """Of the gradients before clipping."""


def train_step(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    budget: int | str | None = None,
    policy: str = "optimal",
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    *,
    plan: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    swap: str = "off",
    swap_dir: str | Path | None = None,
    side_effects: str = "refuse",
    sentinel: bool | int = True,
    keep_gradients: bool = False,
    forms: int = 16,
    measure: str = "before",
    counts: str = "tensors",
    process_group: Any = None,
    mesh: Any = None,
    bucket_cap_mb: float | None = None,
) -> "TrainStep":
    """Make a training step that stays inside `budget` bytes of device memory.

    `step = train_step(...)` captures and plans; `loss = step(batch)` then runs one iteration: forward, backward,
    optimizer, gradients cleared. Loss, parameters, buffers and optimizer state are bit for bit those of eager
    training. `budget` is the peak of the whole step, parameters and optimizer state included: bytes, "4GiB", or "60%"
    of what the step takes without a plan; None leaves the step as it is. With `accumulate=k` every call is a
    micro-step, and the parameters move at every k-th; `step.flush()` moves them after fewer. `clip_grad_norm` clips
    the norm of all gradients before that; `step.grad_norm` is what it was (inf measures it and clips nothing).
    Gradients are dropped as soon as their parameter has moved, unless `keep_gradients` leaves them in `.grad`.
    `plan` is a file from `step.save_plan(path)`: nothing is measured or planned again. `time_limit` bounds all planning
    in seconds; by default a plan may take about three steps. `progress` shows a bar; None does where the output is a
    terminal or a notebook.
    `swap` lets values leave the device where that is cheaper than making them again: "disk" for models on the CPU (in
    `swap_dir`, by default the folder for temporary files), "host" memory for those on a GPU, "auto" for either.
    A forward that changes something in Python is refused; `side_effects="ignore"` says that it does not matter, and
    then the change happens in no step. At steps 1, 2, 4, 8 ... 1,024 and then every 1,024 your own forward runs beside
    the step (nothing is saved for backward), and a loss that is not equal raises EagerMismatch before anything moves;
    `sentinel` is False for never, or a number for every so many steps.
    A batch of another shape is captured when it comes. Where it runs the same ops, it takes over the decisions of a
    plan at hand, if these fit by figures that are scaled to its shape; only when that has cost as much as planning
    takes is it measured, in its next steps, and planned for itself. `forms` is how many shapes and settings are
    remembered.
    With `measure="training"` the call returns after the capture: the first three or four steps run by a provisional
    plan, op by op, and are measured; then the plan is made that trains from there on. An estimate can miss what a
    kernel takes, so these steps may be over the budget, which is logged, and a budget that cannot be met is told only
    after them. Where no provisional plan is well inside the budget, with accumulation, with swaps and on several ranks
    all is measured before; also when somebody asks for `step.plan` or `step.graph` before there was a step.
    `counts="process"` makes the budget one of the whole process on a CPU, as the operating system counts it: whatever
    lowtide, libraries and heaps take beyond what was there before this call, tensors aside, is measured before the plan
    is made and taken off the budget. Otherwise the budget counts tensors and kernels' workspaces.
    On several ranks of torch.distributed `model` is under DistributedDataParallel or `fully_shard`, or a plain one with
    a `process_group` or a `mesh` of one dimension, whose gradients are then averaged in buckets of `bucket_cap_mb`, 25
    as in DDP. Training is bit for bit that of DDP or FSDP2; all ranks run one plan, and each stays inside `budget`.
    """
    options = Options(
        *(budget, policy, clip_grad_norm, accumulate, time_limit, progress, swap, swap_dir, side_effects, sentinel),
        keep_gradients=keep_gradients,
        forms=forms,
        measure=measure,
        counts=counts,
        process_group=process_group,
        mesh=mesh,
        bucket_cap_mb=bucket_cap_mb,
    )
    return TrainStep(model, optimizer, batch, loss, options, None if plan is None else Path(plan))


class TrainStep:
    """A training step inside a budget; see `train_step`. `print(step)` shows the plan."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, batch: Any, loss: Loss | None, options: Options, plan: Path | None
    ) -> None:
        self.model = model
        self.optimizer: Optimizer = unwrapped(optimizer)
        self.loss = loss
        self.options = options
        self.last = Measured()
        self.checks = Watched()
        """What comparing with eager has cost so far."""
        self._is_checked = check_schedule(options.sentinel)
        self._done = 0
        """Micro-steps since the parameters last moved."""
        self._calls = 0
        self._closed = False
        if not isinstance(model, nn.Module):
            refuse_types(model, self.optimizer, loss)
        self._spread = spread_of(model, options.process_group, options.bucket_cap_mb, user_line(), mesh=options.mesh)
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        if options.counts == "process" and device.type != "cpu":
            raise InputError(f'counts="process" is for models on the CPU, not on {device}: leave it out')
        self._ranks = Ranks(self._spread.group, device)
        self._ranks.same("parameter", self._spread.digests(), "load the same state on all ranks, or use DDP")
        self._forms = Forms(self._spread, self._ranks, self.optimizer, batch, loss, options, plan)
        self._meter: Meter = meter_for(self._graph.device)
        self._arena = arena_for(self._graph.device) if options.addresses else None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _GIVEN and name in vars(self):
            raise InputError(
                f"step.{name} cannot be set, as the step is made for the one that it was given: make a "
                "new one with train_step"
            )
        super().__setattr__(name, value)

    def __call__(self, batch: Any) -> Any:
        """One iteration on `batch`, or one micro-step; returns the detached loss, and what else the loss returned."""
        self._refuse_closed()
        if self._spread.group is None:
            refuse_silent_ranks(user_line())
        kind = self._kind()
        with self._ranks.watched("a step"):
            self._spread.start(synced=kind in (Micro.ONLY, Micro.FIRST))
            return self._call(batch, kind)

    def _call(self, batch: Any, kind: Micro) -> Any:
        prepared = self._forms.for_batch(batch, midway=bool(self._done))
        step = prepared.steps[kind]
        tensors = step.graph.form.tensors(batch)
        ledger = Ledger(self.optimizer, [] if step.graph.ending.keep else None, space=self._forms.swap.space)
        if kind in (Micro.ONLY, Micro.FIRST):
            self.optimizer.zero_grad(set_to_none=True)
        prepared.calls += 1
        self._calls += 1
        # What is taken over is checked at its first step, and then as often as any other step of this training.
        is_checked = self._is_checked(self._calls if prepared.taken_over and prepared.calls > 1 else prepared.calls)
        undo = Undo(step.graph, batch, on_device=step.graph.swaps) if step.graph.swaps or is_checked else None
        aside = PutAside(step.graph, tensors) if prepared.guess is not None and prepared.guess.may_stop_midway else None
        complete = bool(self.optimizer.state) or not step.graph.has_state
        complete = complete and all(p.grad is not None for p in step.graph.others)
        try:
            if is_checked:
                ledger.expected = self._eager_loss(step, batch)
            result, peak = self._run(prepared, kind, tensors, ledger, complete=complete)
            for parameter, gradient in ledger.keep or ():
                parameter.grad = gradient
        except BaseException as error:
            undone = undo is not None and not ledger.moved and not ledger.moving
            if aside is not None and isinstance(error, ProfileError):
                aside.put_back()
                ledger.moved.clear()
                undone = True
            elif undo is not None and undone:
                undo()
            if isinstance(error, EagerMismatch):
                where = self._first_difference(step, batch)
                error.args = (
                    f"{error}: they differ first in {where}; nothing has moved. lowtide.check() compares all "
                    "gradients; sentinel=False trains on regardless",
                )
            error.add_note(
                describe_failure(step.graph, ledger, error, accumulating=kind is not Micro.ONLY, undone=undone)
            )
            if self._forms.swap.space is not None:
                self._forms.swap.space.recover()
            self.optimizer.zero_grad(set_to_none=True)
            self._done = 0
            raise
        finally:
            if aside is not None:
                aside.close()
        prepared.guards.settle()
        self._done = (self._done + 1) % self.options.accumulate
        self.last = Measured(peak, ledger.norm)
        prepared.lost += step.extra_seconds
        self._compare(prepared, kind, complete=complete)
        return result

    def _run(
        self, prepared: Prepared, kind: Micro, tensors: Sequence[Tensor], ledger: Ledger, *, complete: bool
    ) -> tuple[Any, int | None]:
        """What the step returns, and the bytes at its peak where they are measured."""
        graph, guess = prepared.steps[kind].graph, prepared.guess
        measures = guess is not None or self._meter.free or kind not in prepared.compared
        before = self._bytes_in_place(graph, tensors) if measures else 0
        if guess is not None:
            if self._arena is not None:
                self._arena.release()  # as long as no plan says where things lie, both would be there
            result, peak = guess.run(tensors, ledger)
            guess.took(before + peak)
            return result, before + peak
        if not measures:
            with self._in_arena(prepared.layouts[kind], usual=complete):
                return graph.run(tensors, ledger), None
        self._meter.start()
        try:
            with self._in_arena(prepared.layouts[kind], usual=complete):
                result = graph.run(tensors, ledger)
        finally:
            taken = self._meter.stop()
        return result, before + taken.peak

    def flush(self) -> bool:
        """Move the parameters by the gradients of an incomplete accumulation, as eager's `optimizer.step()` would.

        Says whether there were any; the next call is the first micro-step again.
        """
        self._refuse_closed()
        if not self._done:
            return False
        before = self._bytes_in_place(self._graph, ())
        self._meter.start()
        try:
            norm = None
            with self._ranks.watched("flush"):
                self._spread.flush([p for group in self.optimizer.param_groups for p in group["params"]])
                if self.options.clip_grad_norm is not None:
                    norm = whole(clip_grad_norm_(self.model.parameters(), self.options.clip_grad_norm))
                self.optimizer.step()
        finally:
            self.last = Measured(before + self._meter.stop().peak, None)
            self._done = 0
            if not self.options.keep_gradients:
                self.optimizer.zero_grad(set_to_none=True)
        self.last.norm = norm
        return True

    def close(self) -> None:
        """Give back graphs, memory, and files that values were swapped to; the step cannot be called any more."""
        self._forms.swap.close()
        self._prepared.clear()
        if self._arena is not None:
            self._arena.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InputError("this step is closed: make a new one with train_step")

    @property
    def grad_norm(self) -> Tensor | None:
        """Of all gradients before they were clipped, at the last step that moved the parameters; None where
        `clip_grad_norm` is not given."""
        return self.last.norm

    @property
    def plan(self) -> StepPlan | None:
        """The plan of the newest batch form; with accumulation, of the step that moves the parameters. None without a
        budget. Made now where it was not."""
        self._plan_now()
        return self._step.plan

    @property
    def graph(self) -> StepGraph:
        """The step that runs, newest batch form; `print` shows it as Python with live bytes. Planned now where it was
        not."""
        self._plan_now()
        return self._graph

    @property
    def is_planned(self) -> bool:
        """Has the plan of the newest batch form been made? Else its first steps are being measured."""
        return not self._newest.waits

    @property
    def profile(self) -> Profile | None:
        """What was measured for planning; None where a saved plan was used or no budget was given."""
        self._plan_now()
        return self._newest.profile

    @property
    def seconds(self) -> dict[str, float]:
        """What the newest capture and its planning took, stage by stage."""
        return dict(self._forms.times.seconds)

    @property
    def predicted_peak(self) -> int | None:
        """Bytes at the peak, by the simulator; of several micro-steps, the highest. None without a budget."""
        self._plan_now()
        peaks = [step.predicted_peak for step in self._newest.steps.values()]
        return max((peak for peak in peaks if peak is not None), default=None)

    @property
    def measured_peak(self) -> int | None:
        """Bytes at the peak of the last step, by the allocator."""
        return self.last.peak

    @property
    def arena_bytes(self) -> int | None:
        """Bytes of the one piece of memory that the steps' tensors lie in; 0 until a whole step has been recorded.
        None where there is none: on CUDA, and without a C++ compiler."""
        return None if self._arena is None else self._arena.bytes

    @property
    def allocations(self) -> StepCounts | None:
        """What the last step's allocations were, planned and not; None where it did not run at planned addresses."""
        return None if self._arena is None else self._arena.last

    def save_plan(self, path: str | Path) -> None:
        """Write the plans of all remembered forms of batch, for `train_step(..., plan=path)`."""
        for prepared in [prepared for prepared in self._prepared if prepared.waits]:
            self._forms.planned(prepared)
        plans = {prepared.plans[0].step: prepared.plans for prepared in self._prepared if prepared.plans}
        if not plans:
            raise InputError("there is no plan to save: this step was made without a budget")
        PlanFile(tuple(plan for each in plans.values() for plan in each)).save(Path(path))

    def is_ready_for(self, batch: Any) -> bool:
        """Would the newest graph serve `batch` as things stand, or must the step be captured anew?"""
        now = optimizer_settings(self.optimizer, is_separable(self.optimizer))
        return self._newest.mismatch(BatchForm.of(batch), now, batch) is None

    def check(self, batch: Any) -> Checked:
        """Compare loss, gradients and buffers of this step with those of your own eager code on `batch`, bit for bit.

        Nothing moves. Under a budget, what eager saves for backward waits on disk. A difference raises EagerMismatch.
        """
        if self._done:
            raise InputError("a check between micro-steps would lose their gradients: check before the first of them")
        if not self._ranks.alone:
            raise InputError("check compares one process with eager: check the plain model in one process before")
        step = self._forms.for_batch(batch, midway=bool(self._done)).steps[self._kind()]
        return check_step(
            step.graph,
            step.captured,
            self.loss or model_loss,
            batch,
            on_disk=self._forms.has_budget,
            space=self._forms.swap.space,
        )

    def explain(self) -> str:
        """The plan as a person would want it: what is kept, recomputed and packed, per module, and what that costs."""
        from lowtide.reporting.explain import explain

        self._plan_now()
        kind = Micro.ONLY if self.options.accumulate == 1 else Micro.LAST
        addresses = describe_arena(self._graph.device, self._arena, self._newest.layouts[kind])
        if self.plan is None:
            name = type(self.model).__name__
            return f"{name} trains as captured: no budget was given.\nIts tensors lie {addresses}.\n"
        return explain(self.plan, measured_peak=self.measured_peak, addresses=addresses)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        guess, plan = self._newest.guess, self._step.plan
        what = "no budget" if plan is None else told(plan)
        if guess is not None and self._newest.waits:
            what = f"{guess.measuring.steps} of {guess.measuring.wanted} steps measured, then it is planned"
        micro = "" if self.options.accumulate == 1 else f", micro-step {self._done} of {self.options.accumulate}"
        count = len(self._prepared)
        forms = "closed" if self._closed else f"{count} form{'s' if count > 1 else ''} of batch"
        return f"TrainStep({type(self.model).__name__}, {describe(self.optimizer)}: {what}{micro}; {forms})"

    def _repr_html_(self) -> str:
        """For notebooks: the line that says what it is, and the plan behind it."""
        line, plan = escape(repr(self)), escape(self.explain())
        return f"<details><summary><code>{line}</code></summary><pre>{plan}</pre></details>"

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a TrainStep cannot be copied: copy the model and the optimizer, and make a new one for them")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TrainStep cannot be pickled: save model and optimizer with state_dict(), and save_plan()")

    @property
    def _prepared(self) -> list[Prepared]:
        return self._forms.remembered

    @property
    def _newest(self) -> Prepared:
        return self._forms.newest

    def _plan_now(self) -> None:
        if self._newest.waits:
            self._forms.planned(self._newest)

    @property
    def _step(self) -> Planned:
        steps = self._newest.steps
        return steps[Micro.ONLY] if self.options.accumulate == 1 else steps[Micro.LAST]

    @property
    def _graph(self) -> StepGraph:
        return self._step.graph

    def _kind(self) -> Micro:
        if self.options.accumulate == 1:
            return Micro.ONLY
        if self._done == 0:
            return Micro.FIRST
        return Micro.LAST if self._done == self.options.accumulate - 1 else Micro.NEXT

    def _in_arena(self, layout: Layout, *, usual: bool) -> AbstractContextManager[None]:
        return nullcontext() if self._arena is None else self._arena.step(layout, usual=usual)

    def _first_difference(self, step: Planned, batch: Any) -> str:
        """Where the step and the user's code differ; that takes a forward of each, which other ranks do not join."""
        if not self._ranks.alone:
            return f"the forward of rank {self._ranks.rank}"
        return first_difference(step.captured, self.model, self.loss or model_loss, batch)

    def _eager_loss(self, step: Planned, batch: Any) -> Tensor | Exception:
        """The loss by the user's own code, with what that took.

        Where that code fails, the step will fail too and say at which op; if it does not, the error is the difference.
        """
        before, start = self._bytes_in_place(step.graph, step.graph.form.tensors(batch)), perf_counter()
        measures = self._meter.free
        if self._arena is not None:
            self._arena.release()  # both at once would take more than the budget
        if measures:
            self._meter.start()
        try:
            with self._spread.eager():
                return eager_loss(self._spread.model, self.loss or model_loss, batch, step.captured)
        except Exception as error:  # noqa: BLE001 - raised by the ledger unless the step itself fails before
            return error
        finally:
            taken = self._meter.stop() if measures else None
            if self._arena is not None:
                trim()
                self._arena.touch()
            self.checks.checks += 1
            self.checks.seconds += perf_counter() - start
            if taken is not None:
                self.checks.peak = max(self.checks.peak or 0, before + taken.peak)
                if step.plan is not None and before + taken.peak > step.plan.budget:
                    log.warning(
                        "comparing with eager took %s, more than the budget: sentinel=False switches it off",
                        format_bytes(before + taken.peak),
                    )

    def _bytes_in_place(self, graph: StepGraph, batch: Sequence[Tensor]) -> int:
        """Device bytes that are there before a step: parameters, buffers, batch, optimizer state, gradients."""
        held = [*graph.held, *batch]
        held += [x for p in graph.residents for x in state_tensors(self.optimizer, p).values()]
        held += [local(p.grad) for p in graph.residents if p.is_leaf and p.grad is not None]
        storages = {x.untyped_storage()._cdata: x for x in held if x.device == graph.device}
        aside = undo_bytes(graph) if graph.swaps else 0
        return sum(x.untyped_storage().nbytes() for x in storages.values()) + aside

    def _compare(self, prepared: Prepared, kind: Micro, *, complete: bool) -> None:
        """Say, once for each kind of step, where it was over the budget, and where the prediction was wrong.

        What is free to measure is watched at every step. Elsewhere only the first step of each kind is measured, and
        the first again where the optimizer makes its state in it: it is not `complete`, and takes less.
        """
        plan, predicted, measured = prepared.steps[kind].plan, prepared.steps[kind].predicted_peak, self.last.peak
        first = complete and kind not in prepared.compared
        if first:
            prepared.compared.add(kind)
        if plan is None or predicted is None or measured is None:
            return
        if measured > plan.budget:
            if kind in prepared.exceeded:
                return
            prepared.exceeded.add(kind)
            prepared.lost = float("inf")  # a plan that was taken over is measured and made anew
            log.error(
                "the step took %s (%d bytes), more than the budget of %d bytes; predicted were %d: unless "
                "another thread took memory meanwhile, please report this",
                format_bytes(measured),
                measured,
                plan.budget,
                predicted,
            )
        elif first and not prepared.taken_over and abs(measured / predicted - 1) > TOLERANCE:
            log.warning(
                "the step took %s, predicted were %s: a difference of %+.1f %%",
                format_bytes(measured),
                format_bytes(predicted),
                100 * (measured / predicted - 1),
            )
