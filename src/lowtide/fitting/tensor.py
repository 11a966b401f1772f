"""Tensor parallel: the step of one rank, captured from DTensors on a process group that is not there.

The model says how (`tp_plan`: transformers' words, or styles of torch, by module), `parallelize_module` does it, and
each DTensor then becomes an ordinary parameter, this rank's part, of which forward makes the DTensor again. So the
graph has the sizes of one rank, and the collectives are ops of it like others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch

from torch import Tensor, distributed, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.utils import parametrize
from torch.optim import Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

from lowtide.errors import InputError, shown
from lowtide.fitting.sequence import HEAD, by_tokens, split_tokens

WORDS: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    HEAD: lambda: ColwiseParallel(output_layouts=Replicate()),
}
"""What transformers calls them."""


@contextmanager
def one_rank(
    model: nn.Module, optimizer: Optimizer | Callable[[nn.Module], Optimizer], ranks: int, *, sequence: bool = False
) -> Iterator[tuple[nn.Module, Optimizer | Callable[[nn.Module], Optimizer]]]:
    """A copy of `model` without data that holds what the first of `ranks` holds, and an optimizer of that copy.

    With `sequence`, what lies between split layers is split by tokens, and the logits stay split.
    """
    if distributed.is_initialized():
        raise InputError("tensor parallel is simulated on a process group of its own: fit in a process without one")
    plan = getattr(model, "tp_plan", None)
    if not isinstance(plan, Mapping) or not plan:
        raise InputError(
            f"{type(model).__name__} does not say how it is spread over devices: give it a tp_plan, by name of module "
            f"a style of torch.distributed.tensor.parallel or one of {', '.join(WORDS)}"
        )
    empty = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in model.parameters()}
    copied = deepcopy(model, dict(empty))
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        parts = _parallelize(copied, plan, ranks, sequence=sequence)
        local = {before: parts.get(id(p), p) for before, p in empty.items()}
        if isinstance(optimizer, Optimizer):
            optimizer = _over(optimizer, local)
        # A collective of a captured step is over when it returns.
        with (
            patch.object(collectives, "wait_tensor", lambda tensor: tensor),
            loss_parallel() if sequence else nullcontext(),
        ):
            yield copied, optimizer
    finally:
        distributed.destroy_process_group()


def _parallelize(model: nn.Module, plan: Mapping[str, Any], ranks: int, *, sequence: bool) -> dict[int, nn.Parameter]:
    """Spread `model`; by identity of each parameter that it had, this rank's part."""
    _check_heads(model, ranks)
    if sequence:
        plan = {**plan, **by_tokens(model, plan)}
    split: list[str] = []
    mesh = init_device_mesh("cpu", (ranks,))
    parts: dict[int, nn.Parameter] = {}
    used: set[str] = set()
    shared = {id(p) for p in model.parameters()} - {id(p) for _, p in _once(model)}
    for name, module in list(model.named_modules()):
        pattern = next((p for p in plan if fnmatchcase(name, p)), None)
        if pattern is None:
            continue
        used.add(pattern)
        split.append(name)
        before = dict(module.named_parameters(recurse=False))
        for parameter, tensor in before.items():
            if id(tensor) in shared:
                raise InputError(
                    f"{name}.{parameter} is shared with another module, which tensor parallel would split: "
                    "set tie_word_embeddings to false, or take another --parallel"
                )
        parallelize_module(module, mesh, _style(plan[pattern], pattern))
        for parameter, tensor in before.items():
            parts[id(tensor)] = _local(module, f"{name}.", parameter, ranks)
    if sequence:
        split_tokens(model, mesh, split)
    if not parts:
        raise InputError(f"the tp_plan names no module of {type(model).__name__}: {shown(sorted(plan))}")
    return parts


def _once(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that stand at one place alone."""
    every = list(model.named_parameters(remove_duplicate=False))
    counts: dict[int, int] = {}
    for _, p in every:
        counts[id(p)] = counts.get(id(p), 0) + 1
    return [(name, p) for name, p in every if counts[id(p)] == 1]


def _style(style: Any, pattern: str) -> ParallelStyle:
    if isinstance(style, ParallelStyle):
        return style
    if style not in WORDS:
        raise InputError(
            f"the tp_plan has {shown(style)} for {shown(pattern)}, which is not simulated: write one of "
            f"{', '.join(WORDS)}, or a style of torch.distributed.tensor.parallel"
        )
    return WORDS[style]()


def _local(module: nn.Module, path: str, name: str, ranks: int) -> nn.Parameter:
    """Put this rank's part in the place of a DTensor, which forward makes of it again."""
    whole = getattr(module, name)
    if not isinstance(whole, DTensor):
        return whole  # type: ignore[no-any-return]
    for placement in whole.placements:
        if placement.is_shard() and whole.shape[placement.dim] % ranks:  # type: ignore[attr-defined]
            raise InputError(f"{path}{name} has the shape {list(whole.shape)}, which {ranks} devices do not divide")
    part = nn.Parameter(whole.to_local().detach(), whole.requires_grad)
    setattr(module, name, part)
    parametrize.register_parametrization(module, name, _Whole(whole), unsafe=True)
    return part


class _Whole(nn.Module):
    """The DTensor of which a parameter is this rank's part."""

    def __init__(self, like: DTensor) -> None:
        super().__init__()
        self._form = (like.device_mesh, like.placements, like.shape, like.stride())

    def forward(self, part: Tensor) -> Tensor:
        mesh, placements, shape, stride = self._form
        return DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)


def _check_heads(model: nn.Module, ranks: int) -> None:
    """Heads of attention go to devices as a whole."""
    config = getattr(model, "config", None)
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % ranks:
            raise InputError(f"{ranks} devices do not divide the {heads} heads of attention ({name}): take fewer")


def _over(optimizer: Optimizer, local: Mapping[int, nn.Parameter]) -> Optimizer:
    """The same optimizer over other parameters, without state."""
    made = copy(optimizer)
    made.param_groups = [{**g, "params": [local.get(id(p), p) for p in g["params"]]} for g in optimizer.param_groups]
    made.state = type(optimizer.state)(dict)
    return made
