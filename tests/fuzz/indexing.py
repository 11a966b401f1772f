"""Functions that move elements by index: sorts, gathers, scatters and masks."""

import torch
from torch import Tensor

from tests.fuzz.kinds import Function, Pick, Shape, function


@function()
def sort(shape: Shape, pick: Pick) -> Function:
    descending, stable = pick("descending", False, True), pick("stable", False, True)
    return lambda x: torch.sort(x, dim=-1, descending=descending, stable=stable).values


@function()
def topk(shape: Shape, pick: Pick) -> Function:
    largest = pick("largest", True, False)
    return lambda x: x.topk(max(1, x.shape[-1] // 2), dim=-1, largest=largest).values


@function()
def argsort_gather(shape: Shape, pick: Pick) -> Function:
    return lambda x: x.gather(-1, x.detach().argsort(-1)) * 0.5


@function()
def kthvalue(shape: Shape, pick: Pick) -> Function:
    return lambda x: x - x.kthvalue(1, dim=-1, keepdim=True).values


@function()
def median(shape: Shape, pick: Pick) -> Function:
    return lambda x: x - x.median(dim=-1, keepdim=True).values


@function()
def scatter(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "scatter", "scatter_add", "reduce_sum", "reduce_amax", "reduce_mean")

    def call(x: Tensor) -> Tensor:
        index = torch.arange(x.shape[-1]).flip(0) // 2
        index = index.expand(x.shape)
        if how == "scatter":
            return torch.zeros_like(x).scatter(-1, torch.arange(x.shape[-1]).flip(0).expand(x.shape), x)
        if how == "scatter_add":
            return torch.zeros_like(x).scatter_add(-1, index, x)
        return x.scatter_reduce(-1, index, x.tanh(), how.removeprefix("reduce_"))

    return call


@function()
def index_select(shape: Shape, pick: Pick) -> Function:
    dim = pick("dim", 1, -1)
    return lambda x: x.index_select(dim, torch.tensor([0, x.shape[dim] - 1, 0]))


@function()
def index_add(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "add", "copy", "fill")

    def call(x: Tensor) -> Tensor:
        index = torch.tensor([0, x.shape[1] - 1])
        if how == "add":
            return x.index_add(1, index, x[:, index].tanh(), alpha=0.5)
        return x.index_copy(1, index[:1], x[:, :1].tanh()) if how == "copy" else x.index_fill(1, index, 0.25)

    return call


@function()
def index_put(shape: Shape, pick: Pick) -> Function:
    accumulate = pick("accumulate", True, False)

    def call(x: Tensor) -> Tensor:
        out = x.clone()
        out.index_put_((torch.tensor([0, 1]), torch.tensor([0, 0])), x[:2, 0].sin(), accumulate=accumulate)
        return out

    return call


@function()
def advanced_indexing(shape: Shape, pick: Pick) -> Function:
    return lambda x: x[:, torch.tensor([0, 0, x.shape[1] - 1])] + x[:, :1]


@function()
def masked_fill(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "fill", "fill_", "where", "where_scalar", "masked_scatter", "indexed")

    def call(x: Tensor) -> Tensor:
        mask = x.detach() > 0.3
        if how == "fill":
            return x.masked_fill(mask, 0.1)
        if how == "fill_":
            return (x * 1.5).masked_fill_(mask, -0.1)
        if how == "where":
            return torch.where(mask, x, x.tanh())
        if how == "where_scalar":
            return torch.where(mask, 0.5, x)
        if how == "masked_scatter":
            return x.masked_scatter(mask, x.flip(0))
        out = x.clone()
        out[mask] = 0.2
        return out

    return call
