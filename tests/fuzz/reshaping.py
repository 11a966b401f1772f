"""Functions that move elements by shape: flips, cuts, joins, views, and writes into parts."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.kinds import Function, Pick, Shape, function


@function()
def roll(shape: Shape, pick: Pick) -> Function:
    dim = pick("dim", 0, 1, -1)
    return lambda x: x.roll(1, dim) + x


@function()
def flip(shape: Shape, pick: Pick) -> Function:
    dims = pick("dims", (0,), (-1,), (1, -1)) if len(shape) > 2 else (1,)
    return lambda x: x.flip(dims)


@function(3, 4, 5)
def triangle(shape: Shape, pick: Pick) -> Function:
    upper, diagonal = pick("upper", True, False), pick("diagonal", 0, 1, -1)
    return lambda x: x.triu(diagonal) if upper else x.tril(diagonal)


@function(3, 4)
def diagonal(shape: Shape, pick: Pick) -> Function:
    return lambda x: x + torch.diag_embed(x.diagonal(dim1=-2, dim2=-1)).sum((-1, -2), keepdim=True)


@function()
def cat(shape: Shape, pick: Pick) -> Function:
    dim = pick("dim", 1, -1)
    return lambda x: torch.cat([x, x.tanh(), x[:, :1] if dim == 1 else x], dim)


@function(2, 3, 4)
def stack(shape: Shape, pick: Pick) -> Function:
    dim = pick("dim", 1, -1)
    return lambda x: torch.stack([x, -x], dim)


@function()
def split(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "split", "chunk", "unbind", "tensor_split", "split_in_place")

    def call(x: Tensor) -> Tensor:
        if how == "unbind":
            first, *rest = x.unbind(1)
            return torch.stack([first.sigmoid(), *rest], 1)
        if how == "split_in_place":
            x = x * 1.0
            parts = x.split(1, -1)
            return torch.cat([parts[0].tanh(), *parts[1:]], -1)
        parts = {"split": x.split(2, -1), "chunk": x.chunk(2, -1), "tensor_split": x.tensor_split(3, -1)}[how]
        return torch.cat(list(parts[::-1]), -1)

    return call


@function()
def repeat(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "repeat", "expand", "interleave", "tile", "interleave_each")

    def call(x: Tensor) -> Tensor:
        if how == "expand":
            return x[:, :1].expand(x.shape) + x
        if how == "interleave":
            return x.repeat_interleave(2, 1)
        if how == "interleave_each":
            return x.repeat_interleave(torch.arange(x.shape[1]) % 2 + 1, dim=1)
        return x.repeat(1, 2, *[1] * (x.dim() - 2)) if how == "repeat" else x.tile(2)

    return call


@function(3, 4, 5, weight=15)
def permute(shape: Shape, pick: Pick) -> Function:
    order = pick(
        "order",
        *([(0, 2, 1)] if len(shape) == 3 else [(0, *range(2, len(shape)), 1), (0, 2, 1, *range(3, len(shape)))]),
    )
    contiguous = pick("contiguous", False, False, True)
    return lambda x: x.permute(order).contiguous() if contiguous else x.permute(order)


@function(3, 4, 5)
def reshape(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "flatten", "merge", "squeeze", "view")

    def call(x: Tensor) -> Tensor:
        if how == "flatten":
            return x.flatten(1)
        if how == "merge":
            return x.flatten(1, 2)
        return x.unsqueeze(1).squeeze(1) if how == "squeeze" else x.contiguous().view(x.shape[0], x.shape[-1], -1)

    return call


@function()
def slices(shape: Shape, pick: Pick) -> Function:
    step = pick("step", 1, 2)
    return lambda x: x[..., ::step] * 2 - x[..., :1]


@function(weight=15)
def slice_assignment(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "fill", "values", "add", "mul", "row")

    def call(x: Tensor) -> Tensor:
        out = x.clone()
        if how == "fill":
            out[..., 0] = 0.5
        elif how == "values":
            out[:, 1:] = x[:, :-1].tanh()
        elif how == "add":
            out[..., ::2] += 1
        elif how == "mul":
            out[:, 0] *= x[:, 0].sigmoid()
        else:
            out[0] = x[0].sin()
        return out

    return call


@function(weight=15)
def views_in_place(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "add", "transposed", "flat", "narrow", "copy", "zero", "chain")

    def call(x: Tensor) -> Tensor:
        out = x * 1.0
        if how == "add":
            out[:, :1].add_(0.3)
        elif how == "transposed":
            out.transpose(0, -1).mul_(0.7)
        elif how == "flat":
            out.contiguous().view(-1)[::2].sub_(0.1)
        elif how == "narrow":
            out.narrow(-1, 0, 1).copy_(x.narrow(-1, 0, 1).cos())
        elif how == "copy":
            out.copy_(x.flip(-1))
        elif how == "zero":
            out.select(-1, 0).zero_()
        else:
            out.add_(1).mul_(0.5).clamp_(-2, 2)
        return out

    return call


@function()
def clones(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "clone", "contiguous", "detached", "to", "channels_last")

    def call(x: Tensor) -> Tensor:
        if how == "detached":
            return x + x.detach()
        if how == "to":
            return x.double().tanh().to(x.dtype)
        if how == "channels_last" and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x.clone() if how == "clone" else x.transpose(0, 1).contiguous().transpose(0, 1)

    return call


@function()
def as_strided(shape: Shape, pick: Pick) -> Function:
    return lambda x: x.contiguous().flatten(1).unfold(1, 2, 1) if x[0].numel() > 1 else x


@function(3, 4)
def movedim(shape: Shape, pick: Pick) -> Function:
    return lambda x: x.movedim(-1, 1).add(0.1)


@function()
def meshgrid(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        first, second = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij")
        places = (first - second).to(x.dtype).view(x.shape[:2] + (1,) * (x.dim() - 2))
        return x + places * 0.1

    return call


@function()
def take_along(shape: Shape, pick: Pick) -> Function:
    return lambda x: torch.take_along_dim(x, x.detach().argmax(-1, keepdim=True), -1) + F.relu(x)
