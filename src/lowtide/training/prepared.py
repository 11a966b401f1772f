"""The steps that are ready for one form of batch, and whether they are still right."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from lowtide.device.arena import Layout
from lowtide.graph.batch_form import BatchForm
from lowtide.optimizer.update import Micro
from lowtide.records.profile import Profile
from lowtide.tracing.capture import Traced
from lowtide.tracing.lifting import Numbers, numbers_of
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
    profile: Profile | None
    compared: set[Micro] = field(default_factory=set)
    """Kinds of step whose measured peak was held against the predicted one."""
    exceeded: set[Micro] = field(default_factory=set)
    """Kinds of step that were over the budget, which was said."""
    calls: int = 0
    layouts: defaultdict[Micro, Layout] = field(default_factory=lambda: defaultdict(Layout))
    """Where the tensors of each kind of step lie."""

    @classmethod
    def of(
        cls, traced: Traced, optimizer: Settings, steps: dict[Micro, Planned], profile: Profile | None
    ) -> "Prepared":
        """What was made of a trace."""
        numbers, freed = numbers_of(traced.graph), _without_example(steps)
        return cls(traced.form, traced.guards, optimizer, numbers, traced.gradients, freed, profile)

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
        conditions = next(iter(self.steps.values())).graph.conditions
        looked = conditions.first_difference(form.tensors(batch))
        return None if looked is None else Change(f"what the step sees in the batch at {looked.source}")


def _without_example(steps: dict[Micro, Planned]) -> dict[Micro, Planned]:
    """The batch that was captured must not stay alive."""
    freed = {}
    for kind, step in steps.items():
        captured = replace(step.captured, example=None)
        graph = captured if step.graph is step.captured else replace(step.graph, example=None)
        freed[kind] = Planned(captured, graph, step.plan)
    return freed
