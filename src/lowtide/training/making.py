"""The steps that are ready, one for each form of batch and state of the world, and how those are made that are not."""

import gc
import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from lowtide.device.limit import give_back
from lowtide.device.outside import outside_bytes
from lowtide.errors import InputError, PlanMismatch
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Micro, UpdateForm, is_separable
from lowtide.parallel.alone import Alone
from lowtide.parallel.ranks import Ranks
from lowtide.planning.apart import LARGE
from lowtide.planning.policies import BudgetInfeasible
from lowtide.records.step_plan import PlanFile, StepPlan
from lowtide.tracing.capture import Traced, trace
from lowtide.tracing.lifting import lift
from lowtide.tracing.loss import Loss
from lowtide.tracing.refusals import refuse_arrays
from lowtide.training.identity import identity, op_lines
from lowtide.training.options import Options
from lowtide.training.pipeline import Guess, StageTimes, guess_by, guess_steps, plan_alike, plan_steps
from lowtide.training.planned import Planned, apply_plan, taken_over
from lowtide.training.prepared import Prepared
from lowtide.training.progress import Progress, in_notebook, progress_bar
from lowtide.training.swap_use import SwapUse
from lowtide.units import format_bytes
from lowtide.watching.guards import Change
from lowtide.watching.settings import Settings, optimizer_settings
from lowtide.watching.tracked import Tracked
from lowtide.watching.values import ANY
from lowtide.watching.watcher import collector_waits

log = logging.getLogger(__name__)

IN_STEPS = 0.04
"""Of a budget for the process: what steps take beside tensors and what was there before the first of them, such as
pages that are not full and buffers of libraries. tests/slow/test_process_budget.py holds it."""
SAME_BATCHES = "every rank must have batches of one form at each step, and the same settings"
OFTEN = 3
"""So many captures for the same value that changes, and the user is told how to do without them."""


class Forms:
    """All that one training has captured and planned; what is missing is made when a batch asks for it."""

    def __init__(
        self,
        spread: Alone,
        ranks: Ranks,
        optimizer: Optimizer,
        batch: Any,
        loss: Loss | None,
        options: Options,
        plan: Path | None,
    ) -> None:
        self.spread = spread
        """The model, and how it is spread over `ranks`."""
        self.ranks = ranks
        self.optimizer = optimizer
        self.loss = loss
        self.options = options
        self.swap = SwapUse(options.swap, None if options.swap_dir is None else Path(options.swap_dir))
        self.remembered: list[Prepared] = []
        """The one used longest ago first; it makes room where there are more than `forms`."""
        self.planning_seconds = 0.0
        """What the last capture took that was measured and planned."""
        self._captures: dict[str, int] = {}
        """How often each changed value has led to a capture."""
        given = [f"plan={plan is not None}", *options.lines]
        ranks.same("setting of train_step", given, "give all ranks the same")
        self._file = None if plan is None else ranks.together("reading the plan", lambda: PlanFile.load(plan))
        self._outside = self._outside_now() if options.counts == "process" and options.budget is not None else None
        """What the process held beside tensors at the start; None where that does not count, or is off the budget."""
        self._budget = options.budget
        """In bytes once a plan has been made: a share is one of the step that was planned first."""
        self.newest = self._make(batch, plan)
        self.remembered.append(self.newest)
        if self.newest.guess is None and self.newest.source is None and self._is_large:
            give_back()  # what capture took, where nothing was measured

    def for_batch(self, batch: Any, *, midway: bool) -> Prepared:
        """Those for `batch` and the world as it is: remembered, or captured and planned now.

        `midway` says that gradients of micro-steps are waiting.
        """
        form = BatchForm.of(batch)
        refuse_arrays(form)
        now = optimizer_settings(self.optimizer, is_separable(self.optimizer))
        why: Change | None = None
        known = list(reversed(self.remembered))
        mismatches = [prepared.mismatch(form, now, batch) for prepared in known]
        served = [f"remembered step {k}" for k, mismatch in enumerate(mismatches) if mismatch is None][:1]
        said = served or [f"a new capture, as {mismatches[0].name} has changed," if mismatches[0] else ""]
        self.ranks.same("batch or setting", [*form.lines, *served], SAME_BATCHES, [*form.lines, *said])
        for prepared, mismatch in zip(known, mismatches, strict=True):
            if mismatch is None:
                self._refuse_midway(prepared, why, midway=midway)
                self.newest = self._improved(prepared, batch, midway=midway)
                others = [p for p in self.remembered if p is not prepared and p is not self.newest]
                self.remembered = [*others, self.newest]
                return self.newest
            why = why or mismatch
        assert why is not None
        self._tell(why, form)
        prepared = self._make(batch, None, why)
        self._refuse_midway(prepared, why, midway=midway)
        self.remembered.append(prepared)
        if len(self.remembered) > self.options.forms:
            log.warning(
                "more than %d forms of step are in use: the one used longest ago is forgotten; forms= remembers more",
                self.options.forms,
            )
            del self.remembered[0]
        self.newest = prepared
        return prepared

    def _improved(self, prepared: Prepared, batch: Any, *, midway: bool) -> Prepared:
        """`prepared`, or what planning makes of it: when enough of its steps are measured, or, where its plans were
        taken over, when these have cost as much as measuring and planning will take."""
        if prepared.guess is not None and prepared.guess.is_measured:
            return self.planned(prepared)
        wants = prepared.taken_over and prepared.guess is None and not midway
        if not wants or not self.ranks.any(prepared.lost > self.planning_seconds):
            return prepared
        log.info("this shape of batch is measured and planned for itself now: %s", "; ".join(prepared.form.lines))
        measured_in_steps = None if prepared.exceeded else self._measured_in_steps(prepared, batch)
        if measured_in_steps is not None:
            return measured_in_steps
        try:
            return self._make(batch, None, alike=False)
        except BudgetInfeasible as infeasible:
            return self._stays(prepared, infeasible)

    def _measured_in_steps(self, prepared: Prepared, batch: Any) -> Prepared | None:
        """`prepared` captured once more, with its own plan, by which the next steps are measured while they train. None
        where runs of their own must do: with accumulation, with copies, on several ranks."""
        if self.options.swap != "off" or not self.ranks.alone or set(prepared.steps) != {Micro.ONLY}:
            return None
        with self._bar() as bar:
            bar.say("capture")
            self.times = StageTimes()
            traced, graphs = self._captured(batch, None)
            self.times.note("capture", f"once more, for {'; '.join(traced.form.lines)}")
            guess = guess_by(traced, graphs, batch, prepared.steps[Micro.ONLY], self._wanted)
            if guess is None:
                return None
            now = optimizer_settings(self.optimizer, is_separable(self.optimizer))
            found = Prepared.of(traced, now, guess.steps, prepared.source, taken_over=True, guess=guess)
            found.before = prepared
            return found

    def _stays(self, prepared: Prepared, infeasible: BudgetInfeasible) -> Prepared:
        """By what was measured no plan was found; but the one that was taken over has been measured too, and fits."""
        log.info("the plan that was taken over stays: %s", infeasible)
        prepared.lost = float("-inf")
        return prepared

    def _refuse_midway(self, prepared: Prepared, why: Change | None, *, midway: bool) -> None:
        """Other gradients than in the micro-steps before: what eager does then depends on what came first."""
        if midway and prepared.gradients != self.newest.gradients:
            raise InputError(
                f"{why} between two micro-steps, and other parameters have gradients now: change it after the call "
                "that moves the parameters"
            )

    def _tell(self, why: Change, form: BatchForm) -> None:
        log.warning("%s: lowtide captures the step anew for %s", why, "; ".join(form.lines))
        count = self._captures[why.name] = self._captures.get(why.name, 0) + 1
        if count == OFTEN and why.holder is not None:
            log.warning(
                "%s has changed %d times, and each time costs a capture: if it is a number, pass it in the batch as a "
                "tensor, such as torch.tensor(value), and read it there",
                why.name,
                count,
            )

    def _trace(self, batch: Any, why: Change | None) -> Traced:
        """Trace; a number that has changed since the newest trace is lifted out of the graph where that can be."""

        def plain() -> Traced:
            side_effects = self.options.side_effects
            model = self.spread.model
            return trace(model, self.optimizer, batch, self.loss, side_effects=side_effects, spread=self.spread)

        if why is None or not why.may_be_lifted or self._captures.get(why.name, 0) > 1:
            return plain()
        assert why.holder is not None
        tracked = Tracked(why.after)
        why.holder.put(why.key, tracked)
        try:
            traced = plain()
        finally:
            why.holder.put(why.key, why.after)
        if tracked.looked_at or not lift(traced.graph, self.newest.numbers, why):
            return plain()
        traced.guards.expect(why, ANY)
        log.info("%s is read anew at every step from now on", why.name)
        return traced

    def _make(self, batch: Any, saved: Path | None, why: Change | None = None, *, alike: bool = True) -> Prepared:
        """Capture and plan; from the file `saved` at the start, later by plans `alike` where there are such.

        What is to be measured is not planned yet, unless it shall be at once.
        """
        with self._bar() as bar:
            bar.say("capture")
            times = self.times = StageTimes()
            traced, graphs = self.ranks.together("capture", lambda: self._captured(batch, why))
            self.ranks.same("batch", traced.form.lines, SAME_BATCHES)
            for graph in graphs.values():
                lines = [] if self.ranks.alone else op_lines(graph)
                self.ranks.same("step", lines, "give all ranks the same model, loss and form of batch")
            now = optimizer_settings(self.optimizer, is_separable(self.optimizer))
            times.note("capture", f"{len(traced.graph.nodes)} ops for {'; '.join(traced.form.lines)}")
            prepared = self._known(traced, graphs, now, saved, bar, alike=alike)
            if prepared is not None:
                return self._ready(prepared)
            guess = guess_steps(traced, graphs, batch, self._wanted, bar, times, self.ranks)
            prepared = Prepared.of(traced, now, guess.steps, None, guess=guess)
            if alike and guess.can_train and self._measures_in_training:
                return prepared
            return self._planned(prepared, guess, bar)

    def planned(self, prepared: Prepared) -> Prepared:
        """`prepared`, with its plans made now where they were not: of what was measured so far."""
        with self._bar() as bar:
            self.times.go_on()
            return self._put_in(prepared, bar)

    def _put_in(self, prepared: Prepared, bar: Progress) -> Prepared:
        if prepared.guess is None:
            return prepared
        try:
            done = self._planned(prepared, prepared.guess, bar)
        except BudgetInfeasible as infeasible:
            if prepared.before is None:
                raise
            done = self._stays(prepared.before, infeasible)
        self.remembered = [done if p is prepared else p for p in self.remembered]
        if self.newest is prepared:
            self.newest = done
        return done

    def _planned(self, prepared: Prepared, guess: Guess, bar: Progress) -> Prepared:
        steps, source = plan_steps(guess, self._wanted, self.swap, bar, self.times, self.ranks, self._beside_tensors)
        self._outside = None
        self.planning_seconds = sum(self.times.seconds.values())
        done = self._ready(prepared.planned(steps, source))
        prepared.guess = None
        del steps, source, guess
        if done.plans[0].unplanned_peak >= LARGE:
            give_back()  # what capture and measuring took
        return done

    def _beside_tensors(self, budget: int) -> int:
        """Bytes of `budget` that are not for tensors."""
        if self._outside is None:
            return 0
        grown = max(0, self._outside_now() - self._outside) + int(IN_STEPS * budget)
        log.info("%s of %s are for what the process takes beside tensors", format_bytes(grown), format_bytes(budget))
        return grown

    def _outside_now(self) -> int:
        return int(self.ranks.largest([outside_bytes()])[0])

    def _ready(self, prepared: Prepared) -> Prepared:
        """Room is made for what its plans send away."""
        if prepared.plans:
            self._budget = prepared.plans[0].budget
            if not any(plan.rewritten for plan in prepared.plans):
                log.info("the step fits into %s as it is: nothing is rewritten", format_bytes(prepared.plans[0].budget))
            self._make_room(prepared.steps)
        return prepared

    @property
    def _is_large(self) -> bool:
        return any(max(step.captured.live_bytes) >= LARGE for step in self.newest.steps.values())

    @property
    def has_budget(self) -> bool:
        """Of the user's, or of a plan's from a file."""
        return self._budget is not None

    @property
    def _wanted(self) -> Options:
        return replace(self.options, budget=self._budget)

    @property
    def _measures_in_training(self) -> bool:
        """Not where copies are measured too, nor where ranks measure together."""
        return self.options.measure == "training" and self.options.swap == "off" and self.ranks.alone

    def _captured(self, batch: Any, why: Change | None) -> tuple[Traced, dict[Micro, StepGraph]]:
        with collector_waits():
            traced = replace(self._trace(batch, why), example=None)  # the batch must not stay alive
            graphs = {kind: traced.finish(self._ending(kind)) for kind in self._kinds()}
            gc.collect(1)
        return traced, graphs

    def _known(
        self,
        traced: Traced,
        graphs: dict[Micro, StepGraph],
        now: Settings,
        saved: Path | None,
        bar: Progress,
        *,
        alike: bool,
    ) -> Prepared | None:
        """What needs no measuring: saved, without a budget, or like a step that is at hand. None where nothing is."""
        file, steps = self._file, None
        if file is not None:
            found = self.ranks.together("reading the plan", lambda: self._from_file(traced, graphs, file, saved))
            steps = None if self.ranks.any(found is None) else found
        if steps is not None:
            return Prepared.of(traced, now, steps, None)
        if self._budget is None:
            return Prepared.of(traced, now, {k: Planned(graph, graph, None) for k, graph in graphs.items()}, None)
        if not alike:
            return None
        same = [
            self._put_in(c, bar) if c.waits and c.guess is not None and c.guess.measuring.steps else c
            for c in self.remembered
            if c.optimizer == now and c.guards.settings == traced.guards.settings
        ]
        for prepared in reversed(same):
            # Other numbers, the same ops, the same kernels: nothing to measure and nothing to plan.
            steps = taken_over(traced, graphs, prepared.steps)
            if steps is not None:
                return Prepared.of(traced, now, steps, prepared.source, taken_over=prepared.taken_over)
        sources = [c.source for c in same if c.source is not None]
        if not sources:
            return None
        bar.say("plan, as for another shape")
        others = [c.steps for c in same if c.plans]
        assert isinstance(self._budget, int), "a plan has been made"
        steps = plan_alike(
            *(traced, graphs, self.options, self._budget, sources[-1], others, self.swap, bar, self.times),
            ranks=self.ranks,
        )
        if steps is None:
            return None
        return Prepared.of(traced, now, steps, sources[-1], taken_over=True)

    def _from_file(
        self, traced: Traced, graphs: dict[Micro, StepGraph], file: PlanFile, path: Path | None
    ) -> dict[Micro, Planned] | None:
        """The plans in `file` for these steps. At the start, when its `path` is given, there must be some."""
        plans, count = file.plans, len(graphs)
        if len(plans) % count:
            raise PlanMismatch(
                f"{path} holds {len(plans)} plans, but accumulate={self.options.accumulate} needs {count}"
            )
        forms = [dict(zip(graphs, plans[k : k + count], strict=True)) for k in range(0, len(plans), count)]
        right = [form for form in forms if all(_is_for(traced, graphs[kind], plan) for kind, plan in form.items())]
        if not right and path is None:
            return None
        return {
            kind: apply_plan(_variant_of(traced, graphs[kind], plan), plan, where=str(path or "the plan file"))
            for kind, plan in (right or forms)[-1].items()
        }

    def _make_room(self, steps: dict[Micro, Planned]) -> None:
        """Off the device, for the newest steps and those that are remembered."""
        known = [*steps.values(), *(step for prepared in self.remembered for step in prepared.steps.values())]
        device = known[0].graph.device
        self.swap.make_room((step.plan for step in known if step.plan is not None and step.graph.swaps), device)

    def _kinds(self) -> Sequence[Micro]:
        if self.options.accumulate == 1:
            return (Micro.ONLY,)
        return (Micro.FIRST, Micro.LAST) if self.options.accumulate == 2 else (Micro.FIRST, Micro.NEXT, Micro.LAST)

    def _ending(self, kind: Micro) -> UpdateForm:
        if not UpdateForm(kind).moves:
            return UpdateForm(kind)
        return UpdateForm(kind, self.options.clip_grad_norm, self.options.keep_gradients)

    def _bar(self) -> AbstractContextManager[Progress]:
        shown = self.options.progress
        shown = (sys.stderr.isatty() or in_notebook()) if shown is None else shown
        return progress_bar() if shown else nullcontext(Progress())


def _is_for(traced: Traced, graph: StepGraph, plan: StepPlan) -> bool:
    """Is it the plan of this very step?"""
    return plan.step.batch == graph.form.lines and plan.step == identity(_variant_of(traced, graph, plan))


def _variant_of(traced: Traced, graph: StepGraph, plan: StepPlan) -> StepGraph:
    """The variant of `graph` with signs where `plan` is for that one; else `graph`, whether the plan fits it or not."""
    if plan.signs and traced.signs:
        signed = traced.finish(graph.ending, signs=True)
        if identity(signed) == plan.step:
            return signed
    return graph
