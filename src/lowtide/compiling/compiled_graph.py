"""One graph of torch.compile's at run time: its two halves, and what crosses from one to the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from lowtide.compiling.within import all_let_go, point_of
from lowtide.graph.program import Halves
from lowtide.graph.step_graph import LetGo, StepGraph
from lowtide.optimizer.update import Ledger
from lowtide.planning.sharing import Point
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.training.planned import Planned

if TYPE_CHECKING:
    from lowtide.compiling.loop import Loop


@dataclass(eq=False)
class Crossing:
    """What one call of forward leaves for its backward. It lives as long as autograd keeps the call's node."""

    halves: Halves
    values: list[Any]
    versions: list[tuple[int, int]]
    """Which of them lie in the user's own tensors, and how often these had been changed."""
    bytes: int
    """Of what nobody else holds."""
    outputs: tuple[StorageWeakRef | None, ...]
    """Of forward."""
    ended: bool = False
    """Its backward has run."""

    def taken(self) -> list[Any]:
        """The values for backward; they stay where the user retains the graph. As autograd, it refuses inputs that have
        been changed since."""
        for place, version in self.versions:
            if self.values[place]._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a {list(self.values[place].shape)} tensor that was given to a compiled graph"
                )
        self.ended = not torch._C._autograd._get_current_graph_task_keep_graph()
        values = list(self.values)
        if self.ended:
            self.values.clear()
        return values


def eager_halves(graph: StepGraph) -> Halves:
    """The executor `eager`: the generated program, one aten op after another."""
    halves = graph.program.halves
    assert halves is not None
    return halves


def _is_same(plan: StepPlan, other: StepPlan) -> bool:
    return (plan.rewritten, plan.actions, plan.order) == (other.rewritten, other.actions, other.order)


def _storages_of(values: Sequence[Any]) -> tuple[StorageWeakRef | None, ...]:
    return tuple(StorageWeakRef(x.untyped_storage()) if isinstance(x, Tensor) else None for x in values)


def _gone(storages: Sequence[StorageWeakRef | None]) -> frozenset[int]:
    return frozenset(k for k, storage in enumerate(storages) if storage is not None and storage.expired())


class CompiledGraph:
    """A graph with its plan. AOTAutograd saves one small tensor between the halves, and that carries the crossing."""

    def __init__(self, captured: StepGraph, halves_of: Callable[[StepGraph], Halves], loop: "Loop") -> None:
        self.captured = captured
        self.loop = loop
        self._halves_of = halves_of
        self._halves: tuple[StepGraph, Halves] | None = None
        self.has_seen = False
        """A backward has ended, so what is held outside meanwhile is known."""
        self.planned: Planned | None = None
        """None until the first call."""
        self.profile: Profile | None = None
        self.point: Point | None = None
        """What the plan takes, by the simulator."""
        self.ladder: tuple[tuple[int, int], list[tuple[StepPlan, Point]]] | None = None
        """Plans to choose from, and how the others lay when they were made: what these left to forward and at the
        boundary, against what they left to backward."""

    @property
    def is_rewritten(self) -> bool:
        """Does a plan change what runs?"""
        return self.planned is not None and self.planned.plan is not None and self.planned.plan.rewritten

    def use(self, planned: Planned) -> Point:
        """Run by this plan from now on."""
        plan, before = planned.plan, self.planned
        assert plan is not None
        if before is not None and before.plan is not None and _is_same(before.plan, plan):
            planned = replace(planned, graph=before.graph)
        self.planned, self.point = planned, point_of(self.captured, plan)
        return self.point

    def compile(self) -> Halves:
        """What runs by the plan; made where that is not done yet."""
        assert self.planned is not None
        graph = self.planned.graph
        if self._halves is None or self._halves[0] is not graph:
            self._halves = (graph, self._halves_of(graph))
        return self._halves[1]

    def forward(self, args: list[Any]) -> list[Any]:
        """Forward of one call: its outputs, and the tensor that carries what crosses."""
        inputs = [*self.captured.residents, *args]
        args.clear()
        self.loop.begin(self, inputs)
        halves = self.compile()
        given = {x.untyped_storage()._cdata for x in inputs}
        with torch.no_grad(), torch._C._DisableAutocast():
            outputs, values = halves.forward(inputs, Ledger(None))
        let_go = self.captured.let_go.outputs
        theirs = [x for k, x in enumerate(outputs) if isinstance(x, Tensor) and k not in let_go]
        known = given | {x.untyped_storage()._cdata for x in theirs}
        stored = [(k, x, x.untyped_storage()) for k, x in enumerate(values)]
        versions = [(k, x._version) for k, x, storage in stored if storage._cdata in given and not x.is_inference()]
        size = sum({s._cdata: s.nbytes() for _, _, s in stored if s._cdata not in known}.values())
        crossing = Crossing(halves, values, versions, size, _storages_of(outputs))
        carrier = torch.empty(1, dtype=torch.int64)
        carrier.untyped_storage().lowtide_crossing = crossing  # type: ignore[attr-defined]
        self.loop.end_forward(self, crossing)
        return [*outputs, carrier]

    def backward(self, args: list[Any]) -> list[Any]:
        """Backward of one call: the gradients of forward's inputs."""
        carrier, *gradients = args
        args.clear()
        crossing = getattr(carrier.untyped_storage(), "lowtide_crossing", None)
        if not isinstance(crossing, Crossing):
            raise RuntimeError(
                "what forward left for backward is gone: a hook of torch.autograd.graph.saved_tensors_hooks has put a "
                "copy in its place; lowtide's graphs cannot be combined with hooks that copy"
            )
        del carrier
        self.loop.begin_backward(self, crossing)
        arrived = _storages_of(gradients)
        with torch.no_grad(), torch._C._DisableAutocast():
            results = crossing.halves.backward(crossing.taken(), gradients, Ledger(None))
        self.loop.end_backward(self, crossing)
        if crossing.ended:
            self._see(LetGo(_gone(crossing.outputs), _gone(arrived)))
        return results

    def _see(self, gone: LetGo) -> None:
        """What of outputs and gradients nobody held when a backward had ended: gone is what has been so each time."""
        before, most = self.captured.let_go, all_let_go(self.captured)
        gone = LetGo(gone.outputs & most.outputs, gone.gradients & most.gradients)
        if self.has_seen:
            gone = LetGo(before.outputs & gone.outputs, before.gradients & gone.gradients)
        self.has_seen = True
        if gone != before and self.planned is not None and self.planned.plan is not None:
            self.counts_on(gone)
            self.point = point_of(self.captured, self.planned.plan)
            self.loop.held_otherwise(self)

    def counts_on(self, let_go: LetGo) -> None:
        """Plan with that from now on."""
        self.captured, self.ladder = replace(self.captured, let_go=let_go), None
