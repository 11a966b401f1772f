"""StepPlan: how one training step is run inside a budget, and which step that is. What `save_plan` writes."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate

from lowtide.planning.problem import Problem
from lowtide.planning.schedule import instances
from lowtide.planning.simulate import Timeline, simulate
from lowtide.records.codec import Saved
from lowtide.records.sound import check_plans


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


class Act(StrEnum):
    """What an op of the problem does to the graph."""

    RUN = "run"
    UPDATE = "update"
    PACK = "pack"
    UNPACK = "unpack"
    OFFLOAD = "offload"
    RELEASE = "release"
    PREFETCH = "prefetch"


@dataclass(frozen=True, slots=True)
class Action:
    """What an op of the problem stands for in the graph."""

    act: Act
    ranks: tuple[int, ...]
    """The op of the graph that runs, or the updates that run together."""
    storage: int | None
    """Of packing and swapping: the storage whose value it is."""
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
    actions: tuple[Action, ...]
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
    signs: tuple[tuple[int, int], ...] = ()
    """The storages that hold signs of ReLU results as bits, each with that of the result."""
    signs_time: float = 0.0
    """How much longer that makes the step by itself: packing the bits, and reading them in backward."""

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
        signs = dict(self.signs)
        for s in self.activations:
            maker, *others = self.problem.producers[s]
            acts = {self.actions[o].act for o in others if o in self.runs}
            packed = s in signs or "unpack" in acts
            what = "recomputed" if self.runs[maker] > 1 else "packed" if packed else "kept"
            what = "swapped" if "prefetch" in acts else what
            found.append(Fate(signs.get(s, s), maker, what))
        return tuple(found)

    @property
    def recompute_time(self) -> float:
        """Predicted time of all runs beyond the first."""
        return sum((n - 1) * self.problem.times[o] for o, n in self.runs.items() if not self.problem.ops[o].optional)

    @property
    def pack_time(self) -> float:
        """Predicted time of packing and unpacking, signs included."""
        acts = {o: n for o, n in self.runs.items() if self.actions[o].act in ("pack", "unpack")}
        return sum(n * self.problem.times[o] for o, n in acts.items()) + self.signs_time

    @property
    def swap_time(self) -> float:
        """Predicted time that swapping costs compute: waiting for copies, and what they take from it."""
        releases = {o: n for o, n in self.runs.items() if self.actions[o].act == "release"}
        return self.timeline.waited + sum(n * self.problem.times[o] for o, n in releases.items())

    @cached_property
    def swapped_bytes(self) -> int:
        """The most bytes that are off the device at once."""
        lived = instances(self.exact, self.exact_order)
        change = [0] * (len(self.exact_order) + 2)
        for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True):
            if self.exact.storages[s].off_device:
                change[born] += self.exact.storages[s].bytes
                change[last + 1] -= self.exact.storages[s].bytes
        return max(accumulate(change))

    @property
    def base_time(self) -> float:
        """Predicted time of the step as it was captured."""
        return self.problem.base_time - self.signs_time

    @property
    def overhead(self) -> float:
        """Predicted extra time, as a share of the captured step's."""
        if not self.rewritten:
            return 0.0
        return self.timeline.time / self.base_time - 1 if self.signs else self.timeline.overhead


@dataclass(frozen=True, slots=True)
class Fate:
    """What a plan does with one activation."""

    storage: int
    """Of a ReLU's result that is kept as signs: that of the result."""
    op: int
    """The op of the problem that makes it, or its signs."""
    what: str
    """`kept`, `recomputed`, `packed` or `swapped`."""


@dataclass(frozen=True)
class PlanFile(Saved):
    """The plans of all kinds of step that training needs: one, or up to three with accumulation."""

    FORMAT = "lowtide-plan/1"

    plans: tuple[StepPlan, ...]

    def check(self) -> None:
        """Every number names something."""
        check_plans(self.plans)
