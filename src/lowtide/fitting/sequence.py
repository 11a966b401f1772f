"""Sequence parallel beside tensor parallel: what lies between the split layers is split by tokens, and so is the loss.

The model's `tp_plan` says which layers of a block take the whole sample (`colwise`) and which give a sum of parts back
(`rowwise`). Around them the sum is reduced into each rank's share of the tokens, and gathered again before the next
part of a block, as torchtitan and Megatron do. The logits stay where they are, split by classes, and the loss is taken
from them there (`loss_parallel` of torch).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.distributed.tensor.parallel.style import ParallelStyle

from lowtide.errors import InputError
from lowtide.tracing.loss import Loss, model_loss

_TOKENS, _HIDDEN = 1, "hidden_states"
HEAD = "colwise_gather_output"
"""What transformers calls the layer that makes logits."""


def by_tokens(model: nn.Module, plan: Mapping[str, Any]) -> dict[str, ParallelStyle]:
    """`plan` with sums that are reduced into shares of tokens, and logits that stay split."""
    made: dict[str, ParallelStyle] = {}
    for pattern, word in plan.items():
        if word == "rowwise":
            made[pattern] = RowwiseParallel(output_layouts=Shard(_TOKENS))
        elif word == HEAD:
            made[pattern] = ColwiseParallel(input_layouts=Shard(_TOKENS), use_local_output=False)
        elif word == "colwise":
            made[pattern] = ColwiseParallel()
    if len(made) != sum(word != "embedding_rowwise" for word in plan.values()) or "rowwise" not in plan.values():
        raise InputError(
            f"sequence parallel is derived from a tp_plan of the words colwise, rowwise and {HEAD} alone, as "
            f"transformers' language models have it, and that of {type(model).__name__} has others"
        )
    return made


def split_tokens(model: nn.Module, mesh: DeviceMesh, split: list[str]) -> None:
    """Hooks: the first block takes its share of the tokens, and each part of a block, one that has some of `split` as
    children, gathers them."""
    modules = dict(model.named_modules())
    parts = list(dict.fromkeys(name.rpartition(".")[0] for name in split if name.count(".") > 1))
    first = parts[0].rpartition(".")[0]

    def share(x: Tensor) -> Tensor:
        if x.shape[_TOKENS] % mesh.size():
            raise InputError(f"{mesh.size()} devices do not divide {x.shape[_TOKENS]} tokens: take another length")
        whole = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return whole.redistribute(placements=[Shard(_TOKENS)]).to_local()

    def gather(x: Tensor) -> Tensor:
        part = DTensor.from_local(x, mesh, [Shard(_TOKENS)], run_check=False)
        return part.redistribute(placements=[Replicate()])

    _before(modules[first], share)
    for name in parts:
        _before(modules[name], gather)


def _before(module: nn.Module, change: Any) -> None:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if _HIDDEN in kwargs:
            return args, {**kwargs, _HIDDEN: change(kwargs[_HIDDEN])}
        return (change(args[0]), *args[1:]), kwargs

    module.register_forward_pre_hook(hook, with_kwargs=True)


def whole_loss(loss: Loss | None) -> Loss:
    """The same, where the logits are split: it is the whole loss on every rank."""

    def local(model: nn.Module, batch: Any) -> Any:
        value = model_loss(model, batch) if loss is None else loss(model, batch)
        return value.to_local() if isinstance(value, DTensor) else value

    return local
