"""StepPlan: how one training step is run inside a budget, and which step that is. What `save_plan` writes."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lowtide.planning.problem import Problem
from lowtide.planning.simulate import Timeline, simulate
from lowtide.records.codec import load_record, save_record

FORMAT = "lowtide-plan/1"


@dataclass(frozen=True, slots=True)
class Identity:
    """The step that a plan is for."""

    model: str
    optimizer: str
    batch: tuple[str, ...]
    device: str
    torch: str
    ending: str
    """Accumulation and clipping."""
    graph: str
    """Hash of all ops, shapes and constants."""

    def difference(self, other: "Identity") -> str | None:
        """Where `other`, the step at hand, is another one, in a few words; None where it is the same."""
        for field, word in (
            ("torch", "torch version"),
            ("model", "model"),
            ("optimizer", "optimizer"),
            ("device", "device"),
            ("ending", "accumulation or clipping"),
        ):
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs:
                return f"the {word} is {theirs}, but the plan is for {mine}"
        for mine, theirs in zip(self.batch, other.batch, strict=False):
            if mine != theirs:
                return f"the batch has {theirs}, but the plan is for {mine}"
        if len(self.batch) != len(other.batch):
            return f"the batch has {len(other.batch)} tensors, but the plan is for {len(self.batch)}"
        if self.graph != other.graph:
            return (
                "the model has another configuration (a layer's size, dropout, training mode, frozen parameters, "
                "the loss) than the one that was planned"
            )
        return None


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """What an op of the problem stands for in the graph."""

    act: str
    """`run`, `update`, `pack` or `unpack`."""
    ranks: tuple[int, ...]
    storage: int | None
    """Of pack and unpack: the storage whose value it is."""
    module: str
    source: str


@dataclass(frozen=True)
class StepPlan:
    """A schedule for one step, with the problem that it solves."""

    step: Identity
    budget: int
    policy: str
    unplanned_peak: int
    """Predicted peak of the step as it was captured."""
    rewritten: bool
    """False where everything fits as it is."""
    problem: Problem
    actions: tuple[ActionRecord, ...]
    activations: tuple[int, ...]
    """Storages that forward makes and backward reads."""
    order: tuple[int, ...]
    exact: Problem
    """The problem with the generator states that this order needs: what the prediction is made from."""
    exact_order: tuple[int, ...]
    bound: float
    """No schedule of the problem within the budget has less overhead."""
    seconds: float
    """What planning took."""
    note: str

    @cached_property
    def timeline(self) -> Timeline:
        """What the simulator says of the order."""
        return simulate(self.exact, self.exact_order)

    @property
    def peak(self) -> int:
        """Predicted peak in bytes."""
        return self.timeline.peak if self.rewritten else self.unplanned_peak

    @cached_property
    def runs(self) -> dict[int, int]:
        """How often each op of the problem runs."""
        counts: dict[int, int] = {}
        for o in self.order:
            counts[o] = counts.get(o, 0) + 1
        return counts

    @property
    def fates(self) -> tuple["Fate", ...]:
        """What becomes of every activation."""
        found = []
        for s in self.activations:
            maker, *others = self.problem.producers[s]
            what = "recomputed" if self.runs[maker] > 1 else "packed" if any(o in self.runs for o in others) else "kept"
            found.append(Fate(s, maker, what))
        return tuple(found)

    @property
    def recompute_time(self) -> float:
        """Predicted time of all runs beyond the first."""
        return sum((n - 1) * self.problem.times[o] for o, n in self.runs.items() if not self.problem.ops[o].optional)

    @property
    def pack_time(self) -> float:
        """Predicted time of packing and unpacking."""
        return sum(n * self.problem.times[o] for o, n in self.runs.items() if self.problem.ops[o].optional)

    @property
    def overhead(self) -> float:
        """Predicted extra time, as a share of the step's."""
        return self.timeline.overhead if self.rewritten else 0.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What a plan does with one activation."""

    storage: int
    op: int
    """The op of the problem that makes it."""
    what: str
    """`kept`, `recomputed` or `packed`."""


@dataclass(frozen=True)
class PlanFile:
    """The plans of all kinds of step that training needs: one, or up to three with accumulation."""

    plans: tuple[StepPlan, ...]

    def save(self, path: Path) -> None:
        """Write it as versioned JSON."""
        save_record(self, path, version=FORMAT)

    @classmethod
    def load(cls, path: Path) -> "PlanFile":
        """Read back an equal record."""
        return load_record(cls, path, version=FORMAT)
