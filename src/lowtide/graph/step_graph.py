"""StepGraph: one whole training iteration as one graph, and what is known about each of its ops and storages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.errors import BatchMismatch, InputError, StaleCapture
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.conditions import Conditions
from lowtide.graph.listing import listing
from lowtide.graph.liveness import ActivationUses, Lifetime, activation_uses, lifetimes, live_bytes
from lowtide.graph.ops import Op, Storage
from lowtide.graph.program import Program, results_of, write_program
from lowtide.graph.storing import Packing, Swapping, packings, swappings
from lowtide.kernels.boundary import boundary
from lowtide.kernels.dispatch import below_autograd, grad_mode_of
from lowtide.kernels.packing import pack_bits
from lowtide.kernels.shards import as_gradient, local
from lowtide.kernels.swap import Space
from lowtide.optimizer.update import Ledger, UpdateForm
from lowtide.records.vocabulary import Purpose, Role
from lowtide.watching.guards import Guards


@dataclass(frozen=True, slots=True)
class LetGo:
    """What the caller of a step in halves does not hold on to, by place: it dies where the step reads it last."""

    outputs: frozenset[int] = frozenset()
    """Of forward."""
    gradients: frozenset[int] = frozenset()
    """That come in at the boundary."""


@dataclass(frozen=True)
class StepGraph:
    """A captured step. `graph(batch)` runs it: one iteration of training, bit for bit eager's."""

    model: nn.Module
    optimizer: Optimizer | None
    """None where forward and backward are all of it: the loop is the user's own."""
    form: BatchForm
    graph: fx.Graph
    ops: tuple[Op, ...]
    storages: tuple[Storage, ...]
    residents: tuple[Tensor, ...]
    """The user's own tensors that the graph starts from, batch aside, in the order of the graph's inputs."""
    layers: tuple[str, ...]
    """Paths of the modules that own parameters."""
    loose: tuple[Tensor, ...]
    """Parameters whose gradient the graph returns, to lie in `.grad`: the optimizer's, in the first of several
    micro-steps."""
    extra: pytree.TreeSpec
    """The structure of what the loss function returned beside the loss."""
    example: Any
    """The batch that it was captured with; profiling runs on it."""
    ending: UpdateForm
    """What becomes of the gradients."""
    conditions: Conditions
    """What was decided by looking at the batch."""
    guards: Guards
    """What was read of the user's Python, and how torch was set."""
    let_go: "LetGo" = LetGo()
    """Of a step in halves."""
    siblings: "Siblings | None" = None
    """Graphs of the same step for batches that answer the conditions differently; None where only this one will do."""

    def __call__(self, batch: Any, *, keep_gradients: bool = False, space: Space | None = None) -> Any:
        """Run one training step on `batch`; returns the detached loss.

        Where the loss function returned a tuple or a dict, all of it comes back. With `keep_gradients` the gradients
        are left in `.grad`, as eager training leaves them; without, each is dropped once its parameter has moved.
        A step that swaps needs a `space`.
        """
        if self.optimizer is None:
            raise InputError(
                "a step without an optimizer runs in halves: the gradients of its outputs come from outside"
            )
        ledger = Ledger(self.optimizer, [] if keep_gradients else None, space=space)
        change = self.guards.changed()
        if change is not None:
            raise StaleCapture(f"{change} since the step was captured: capture again")
        tensors = self.form.tensors(batch)
        looked = self.conditions.first_difference(tensors)
        if looked is not None and self.siblings is not None:
            return self.siblings.for_batch(batch, tensors)(batch, keep_gradients=keep_gradients, space=space)
        if looked is not None:
            raise BatchMismatch(
                f"the step looks at the batch at {looked.source} and sees something else than when it was captured: "
                "capture again"
            )
        if not self.ending.adds:
            self.optimizer.zero_grad(set_to_none=True)
        result = self.run(tensors, ledger)
        for parameter, gradient in ledger.keep or ():
            parameter.grad = gradient
        return result

    def run(self, batch: Sequence[Tensor], ledger: Ledger) -> Any:
        """The step on the tensors of a batch; `ledger` says afterwards, or after an exception, what has moved."""
        with below_autograd():
            outputs = self.program.run([*self.held, *batch], ledger)
        return self.returned(outputs)

    def returned(self, outputs: list[Any]) -> Any:
        """What the user gets, of the program's `outputs`, which are emptied; gradients that nothing moves are put where
        they belong."""
        loss, *rest = outputs
        outputs.clear()
        loose = [rest.pop() for _ in self.loose][::-1]
        for parameter, gradient in zip(self.loose, loose, strict=True):
            parameter.grad = as_gradient(parameter, gradient)
        del loose
        if not self.extra.num_leaves:
            return loss
        beside = pytree.tree_unflatten(rest, self.extra)
        return {**beside, "loss": loss} if isinstance(beside, dict) else (loss, *beside)

    @property
    def held(self) -> list[Tensor]:
        """Of the residents what lies on this rank: what the program starts from, before the batch."""
        return [local(tensor) for tensor in self.residents]

    @cached_property
    def program(self) -> Program:
        """The generated Python program that runs the graph."""
        return write_program(self.graph, self.ops, self.grad_mode)

    @cached_property
    def lifetimes(self) -> dict[int, Lifetime]:
        """When each storage that is not resident is alive."""
        return lifetimes(self.ops, self.storages, self.kept)

    @cached_property
    def kept(self) -> frozenset[int]:
        """The storages that must be alive at the end: of outputs, gradients that stay, what a boundary brought."""
        results = enumerate(results_of(self.graph))
        names = {x.name for k, x in results if isinstance(x, fx.Node) and k not in self.let_go.outputs}
        kept = {made.storage for op in self.ops for made in op.outputs if made.name in names}
        brought = () if self.boundary is None else self.boundary.makes
        kept |= {s for k, s in enumerate(brought) if k - 1 not in self.let_go.gradients}
        return frozenset(kept | self.staying)

    @cached_property
    def staying(self) -> frozenset[int]:
        """The storages of gradients that stay when the parameters have moved."""
        if not self.ending.keep:
            return frozenset()
        read = {s for op in self.ops if op.is_update for s in op.reads}
        return frozenset(s for s in read if not self.storages[s].resident)

    @cached_property
    def boundary(self) -> Op | None:
        """Where forward ends and the gradients of its outputs come in from outside; None where the step is a whole."""
        return next((op for op in self.ops if op.node.target is boundary), None)

    def grad_mode(self, op: Op) -> bool:
        """Are gradients switched on while `op` runs? A compiled graph runs without, as torch.compile runs it."""
        return self.boundary is None and grad_mode_of(op.phase)

    @cached_property
    def live_bytes(self) -> list[int]:
        """Bytes alive while each op runs, workspaces aside."""
        return live_bytes(self.ops, self.storages, self.lifetimes)

    @cached_property
    def activations(self) -> tuple[ActivationUses, ...]:
        """Every activation with its uses, in order of creation."""
        return activation_uses(self.ops, self.storages)

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """The activations that can be kept in fewer bytes."""
        return packings(self.ops, self.storages)

    @cached_property
    def swappings(self) -> tuple[Swapping, ...]:
        """The activations that can leave the device and come back."""
        return swappings(self.ops, self.storages)

    @cached_property
    def swaps(self) -> bool:
        """Does it need a space for values that leave the device?"""
        return any(op.purpose is Purpose.OFFLOAD for op in self.ops)

    @cached_property
    def signs(self) -> dict[int, int]:
        """For each storage that holds the signs of a ReLU's result as bits, the storage of the result."""
        packs = (op for op in self.ops if op.node.target is pack_bits and op.purpose is not Purpose.PACK)
        return {op.makes[0]: op.reads[0] for op in packs}

    @property
    def has_state(self) -> bool:
        """Does the optimizer hold tensors from its first step on?"""
        return any(storage.role is Role.OPTIMIZER_STATE for storage in self.storages)

    @cached_property
    def others(self) -> tuple[Tensor, ...]:
        """The parameters that the optimizer does not hold and whose gradients add up in `.grad`."""
        if self.optimizer is None:
            return ()
        held = {id(local(p)) for group in self.optimizer.param_groups for p in group["params"]}
        given = dict(zip(self.graph.nodes, self.held, strict=False))
        updated = [given[node] for op in self.ops if op.is_update for node in op.node.args[0]]  # type: ignore[union-attr]
        return tuple(p for p in updated if id(p) not in held)

    @property
    def resident_bytes(self) -> int:
        """Parameters, buffers, optimizer state, batch."""
        return sum(storage.bytes for storage in self.storages if storage.resident)

    @property
    def device(self) -> torch.device:
        """Where the step runs."""
        return self.residents[0].device if self.residents else self.form.tensor_leaves[0].device

    def __str__(self) -> str:
        return listing(self)


@dataclass
class Siblings:
    """The graphs of one step, one for each way in which its conditions are answered."""

    capture: Callable[[Any], StepGraph]
    known: list[StepGraph] = field(default_factory=list)

    def for_batch(self, batch: Any, tensors: Sequence[Tensor]) -> StepGraph:
        """The one that is right for `batch`; captured now where there is none yet."""
        for graph in self.known:
            if graph.conditions.first_difference(tensors) is None:
                return graph
        graph = replace(self.capture(batch), siblings=self)
        self.known.append(graph)
        return graph
