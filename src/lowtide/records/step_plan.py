"""StepPlan: how one training step is run inside a budget, and which step that is. What `save_plan` writes."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from lowtide.planning.problem import Problem
from lowtide.records.codec import Saved
from lowtide.records.sound import check_plans


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a plan may do beside dropping what nobody reads again; all of it, unless one is measured without."""

    recompute: bool = True
    pack: bool = True
    early_updates: bool = True
    """Parameters move as soon as their gradient is complete; without, at the end, as in eager training."""


EVERYTHING = Allowed()
AS_IT_IS = Allowed(early_updates=False)
"""Of a step that is not planned."""


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


FATES = ("kept", "recomputed", "packed", "swapped")


class Act(StrEnum):
    """What an op of the problem does to the graph."""

    RUN = "run"
    UPDATE = "update"
    PACK = "pack"
    UNPACK = "unpack"
    OFFLOAD = "offload"
    RELEASE = "release"
    PREFETCH = "prefetch"
    START = "start"
    """Of a collective, which goes on beside compute."""
    WAIT = "wait"
    """For it: what it makes is there."""
    BESIDE = "beside"
    """Nothing: what a collective takes in the meantime, of its lane or from compute."""


@dataclass(frozen=True, slots=True)
class Action:
    """What an op of the problem stands for in the graph."""

    act: Act
    ranks: tuple[int, ...]
    """The op of the graph that runs, starts or is waited for, or the updates that run together."""
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
    def runs(self) -> dict[int, int]:
        """How often each op of the problem runs."""
        counts: dict[int, int] = {}
        for o in self.order:
            counts[o] = counts.get(o, 0) + 1
        return counts

    def runs_of(self, *acts: Act) -> dict[int, int]:
        """How often each op of these kinds runs."""
        return {o: n for o, n in self.runs.items() if self.actions[o].act in acts}

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
    def fate_sizes(self) -> dict[str, list[int]]:
        """Bytes of the activations by what becomes of them."""
        sizes: dict[str, list[int]] = {what: [] for what in FATES}
        for fate in self.fates:
            sizes[fate.what].append(self.problem.storages[fate.storage].bytes)
        return sizes

    @property
    def recompute_time(self) -> float:
        """Predicted time of all runs beyond the first."""
        return sum((n - 1) * self.problem.times[o] for o, n in self.runs.items() if not self.problem.ops[o].optional)

    @property
    def pack_time(self) -> float:
        """Predicted time of packing and unpacking, signs included."""
        packs = self.runs_of(Act.PACK, Act.UNPACK)
        return sum(n * self.problem.times[o] for o, n in packs.items()) + self.signs_time

    @property
    def base_time(self) -> float:
        """Predicted time of the step as it was captured."""
        return self.problem.base_time - self.signs_time


@dataclass(frozen=True, slots=True)
class Fate:
    """What a plan does with one activation."""

    storage: int
    """Of a ReLU's result that is kept as signs: that of the result."""
    op: int
    """The op of the problem that makes it, or its signs."""
    what: str
    """One of FATES."""


@dataclass(frozen=True)
class PlanFile(Saved):
    """The plans of all kinds of step that training needs: one, or up to three with accumulation."""

    FORMAT = "lowtide-plan/1"

    plans: tuple[StepPlan, ...]

    def check(self) -> None:
        """Every number names something."""
        check_plans(self.plans)
