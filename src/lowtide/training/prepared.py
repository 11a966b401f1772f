"""The steps that are ready for one form of batch, and whether they are still right."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from lowtide.device.arena import Layout
from lowtide.graph.batch_form import BatchForm
from lowtide.optimizer.update import Micro
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.tracing.capture import Traced
from lowtide.tracing.lifting import Numbers, numbers_of
from lowtide.training.pipeline import Guess, Source
from lowtide.training.planned import Planned
from lowtide.watching.guards import Change, Guards
from lowtide.watching.settings import Settings, change


@dataclass
class Prepared:
    """Everything made for one form of batch in one state of the world."""

    form: BatchForm
    guards: Guards
    optimizer: Settings
    numbers: Numbers
    """Of the traced graph: what a later trace is compared with."""
    gradients: tuple[str, ...]
    """Names of the parameters that get one."""
    steps: dict[Micro, Planned]
    source: Source | None
    """What was measured for the plans, of this form of batch or, where they are `taken_over`, of another."""
    taken_over: bool = False
    """The decisions are those of a plan for another shape."""
    lost: float = 0.0
    """Seconds, predicted, that plans which were taken over have cost so far beyond the step as captured."""
    compared: set[Micro] = field(default_factory=set)
    """Kinds of step whose measured peak was held against the predicted one."""
    exceeded: set[Micro] = field(default_factory=set)
    """Kinds of step that were over the budget, which was said."""
    calls: int = 0
    guess: Guess | None = None
    """What runs until the plans are made, while it is measured; None once they are."""
    before: "Prepared | None" = None
    """What has trained this form of batch by decisions that were taken over, and goes on if planning brings nothing."""
    layouts: defaultdict[Micro, Layout] = field(default_factory=lambda: defaultdict(Layout))
    """Where the tensors of each kind of step lie."""

    @classmethod
    def of(
        cls,
        traced: Traced,
        optimizer: Settings,
        steps: dict[Micro, Planned],
        source: Source | None,
        *,
        taken_over: bool = False,
        guess: Guess | None = None,
    ) -> "Prepared":
        """What was made of a trace."""
        numbers, freed = numbers_of(traced.graph), _without_example(steps)
        world = traced.form, traced.guards, optimizer, numbers, traced.gradients
        return cls(*world, freed, source, taken_over, guess=guess)

    def planned(self, steps: dict[Micro, Planned], source: Source | None, *, taken_over: bool = False) -> "Prepared":
        """The same with its plans, made now."""
        world = self.form, self.guards, self.optimizer, self.numbers, self.gradients
        return Prepared(*world, _without_example(steps), source, taken_over, calls=self.calls)

    @property
    def waits(self) -> bool:
        """Is there no plan yet?"""
        return self.guess is not None and self.before is None

    @property
    def profile(self) -> Profile | None:
        """What was measured of this form of batch; None where nothing was."""
        return None if self.source is None or self.taken_over else self.source.plain.measured

    @property
    def plans(self) -> tuple[StepPlan, ...]:
        """Those of all kinds of step; none without a budget."""
        return tuple(step.plan for step in self.steps.values() if step.plan is not None)

    def mismatch(self, form: BatchForm, optimizer: Settings, batch: Any) -> Change | None:
        """Why this is not the one for `batch` now; None where it is."""
        if self.form != form:
            return Change("the form of the batch")
        name = change(self.optimizer, optimizer)
        if name is not None:
            return Change(name)
        changed = self.guards.changed()
        if changed is not None:
            return changed
        tensors = form.tensors(batch)
        if self.guards.memory.shared_with(tensors) != self.guards.memory.batch:
            return Change("which tensors of the batch share their memory with the model")
        conditions = next(iter(self.steps.values())).graph.conditions
        looked = conditions.first_difference(tensors)
        return None if looked is None else Change(f"what the step sees in the batch at {looked.source}")


def _without_example(steps: dict[Micro, Planned]) -> dict[Micro, Planned]:
    """The batch that was captured must not stay alive."""
    freed = {}
    for kind, step in steps.items():
        if step.captured.example is not None:
            captured = replace(step.captured, example=None)
            graph = captured if step.graph is step.captured else replace(step.graph, example=None)
            step = Planned(captured, graph, step.plan)
        freed[kind] = step
    return freed
