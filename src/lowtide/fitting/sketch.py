"""A step known by its shapes alone, with the times of one device."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.errors import InputError
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import UpdateForm
from lowtide.parallel.alone import Alone
from lowtide.profiling.estimate import RANKS, Rates, estimate
from lowtide.profiling.problem import StepProblem, problem_of
from lowtide.profiling.scaled import through
from lowtide.records.step_plan import AS_IT_IS
from lowtide.tracing.capture import trace
from lowtide.tracing.loss import Loss
from lowtide.tracing.weightless import kernels_of_a_gpu, with_shapes_alone
from lowtide.training.planned import Variant


@dataclass(frozen=True)
class Sketch:
    """The captured step, as it is and with signs kept, each with its estimate."""

    plain: Variant
    signs: Variant | None
    parameters: int
    """Of the whole model, also where it is a part of it."""
    samples: int
    tokens: int
    """In one sample; 0 where the batch is not made of whole numbers."""

    @cached_property
    def late(self) -> StepProblem:
        """As people train: all parameters move at the end."""
        return problem_of(self.plain.graph, self.plain.profile, allowed=AS_IT_IS)

    def on(self, rates: Rates) -> "Sketch":
        """The same step on another device."""
        plain, signs = (v and Variant(v.graph, estimate(v.graph, rates)) for v in (self.plain, self.signs))
        assert plain is not None
        return replace(self, plain=plain, signs=signs)


def sketch(
    model: nn.Module,
    optimizer: Optimizer | Callable[[nn.Module], Optimizer],
    batch: Any,
    loss: Loss | None,
    rates: Rates,
    *,
    gpu: bool = False,
    tensor: int = 1,
    sequence: bool = False,
) -> Sketch:
    """Capture a step without its weights. An optimizer that refuses parameters without data is made by a function.

    With `gpu`, what torch would choose on a GPU: attention kernels and dropout that keep less, and
    foreach where an optimizer leaves the choice. With `tensor`, the step of one of so many that share each layer, with
    `sequence` also the tokens between layers.
    """
    values = with_values(batch)
    leaves = [x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)]
    samples = leaves[0].shape[0] if leaves and leaves[0].dim() else 1
    tokens = leaves[0].shape[1] if leaves and leaves[0].dim() == 2 and not leaves[0].is_floating_point() else 0
    parameters = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    with (
        _one_rank(model, optimizer, tensor, sequence) as (model, optimizer),
        with_shapes_alone(model, optimizer) as optimizer,
        kernels_of_a_gpu() if gpu else nullcontext(),
    ):
        traced = trace(model, optimizer, values, _loss(loss, sequence), spread=Alone(model) if tensor > 1 else None)
        graphs = [traced.finish(UpdateForm())]
        if traced.signs:
            graphs.append(traced.finish(UpdateForm(), signs=True))
        for node in (node for graph in graphs for node in graph.graph.nodes if "_c10d_functional" in str(node.target)):
            node.meta[RANKS] = tensor
        plain, *signs = (Variant(g, estimate(g, rates)) for g in (_on_a_gpu(g) if gpu else g for g in graphs))
    return Sketch(plain, signs[0] if signs else None, parameters, samples, tokens)


def _one_rank(
    model: nn.Module, optimizer: Any, tensor: int, sequence: bool
) -> AbstractContextManager[tuple[nn.Module, Any]]:
    if tensor == 1:
        return nullcontext((model, optimizer))
    from lowtide.fitting.tensor import one_rank  # DTensor is slow to import

    return one_rank(model, optimizer, tensor, sequence=sequence)


def _loss(loss: Loss | None, sequence: bool) -> Loss | None:
    if not sequence:
        return loss
    from lowtide.fitting.sequence import whole_loss

    return whole_loss(loss)


def _on_a_gpu(graph: StepGraph) -> StepGraph:
    """With torch's choice there: foreach where neither it nor fused was asked for."""
    optimizer = copy(graph.optimizer)
    assert optimizer is not None
    optimizer.param_groups = [
        group if group.get("fused") or group.get("foreach") is not None or group.get("differentiable")
        else {**group, "foreach": True}
        for group in optimizer.param_groups
    ]  # fmt: skip
    return replace(graph, optimizer=optimizer)


def with_values(batch: Any) -> Any:
    """`batch` on the CPU: what is on the meta device becomes ones, which masks, labels and token numbers can be."""

    def real(x: Tensor) -> Tensor:
        return torch.ones(x.shape, dtype=x.dtype) if x.is_meta else x

    return pytree.tree_map_only(Tensor, real, batch)


class Sizes:
    """Steps of any size, from those of two units, three and four: bytes and times grow as a square at most."""

    def __init__(self, make: Callable[[int], Sketch]) -> None:
        self._known = [make(units) for units in (2, 3, 4)]  # of one, torch views where it copies several
        names = [[op.name for op in sketch.plain.graph.ops] for sketch in self._known]
        if any(each != names[0] for each in names):
            raise InputError(
                "two units, three and four of the batch or of the length are steps of different ops, so the largest "
                "cannot be found from them: leave out --largest, and try sizes one by one"
            )

    def at(self, units: int) -> Sketch:
        """With so many: on the parabola through the three, in whole numbers."""
        weights = ((units - 3) * (units - 4) // 2, (2 - units) * (units - 4), (units - 2) * (units - 3) // 2)
        signs = [sketch.signs for sketch in self._known]
        both = _through([s for s in signs if s is not None], weights) if None not in signs else None
        return replace(self._known[0], plain=_through([s.plain for s in self._known], weights), signs=both)


def _through(known: Sequence[Variant], weights: Sequence[int]) -> Variant:
    return Variant(known[0].graph, through([v.profile for v in known], weights))
