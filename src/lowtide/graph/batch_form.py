"""How a batch is taken apart, checked, and put together again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from lowtide.errors import BatchMismatch, InputError, shown
from lowtide.watching.values import PLAIN, same


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """What the graph takes for granted about one tensor of the batch; its values are not among it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    stride: tuple[int, ...]
    kind: type = Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorLeaf":
        """The signature of `tensor`."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device, tuple(tensor.stride()), type(tensor))

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)} on {self.device}"


@dataclass(frozen=True)
class BatchForm:
    """The structure of a batch: which leaves are tensors of what kind, and the constants between them."""

    spec: pytree.TreeSpec
    wrapper: type | None
    paths: tuple[str, ...]
    leaves: tuple[TensorLeaf | object, ...]
    sharing: tuple[int, ...]
    """For each tensor, the first one that lies in the same storage: one tensor under two names is another step."""

    @classmethod
    def of(cls, batch: Any) -> "BatchForm":
        """Read the form off an example."""
        wrapper = type(batch) if isinstance(batch, Mapping) and not isinstance(batch, dict) else None
        paths, spec = pytree.tree_flatten_with_path(dict(batch) if wrapper else batch)
        names = tuple("batch" + pytree.keystr(path) for path, _ in paths)
        leaves = tuple(TensorLeaf.of(x) if isinstance(x, Tensor) else x for _, x in paths)
        return cls(spec, wrapper, names, leaves, _sharing([x for _, x in paths if isinstance(x, Tensor)]))

    def __eq__(self, other: object) -> bool:
        """Constants are the same by type and value: 1 is neither True nor 1.0, and nan is itself."""
        return (
            isinstance(other, BatchForm)
            and (self.spec, self.wrapper, self.paths, self.sharing)
            == (other.spec, other.wrapper, other.paths, other.sharing)
            and all(map(_same, self.leaves, other.leaves))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def tensor_paths(self) -> tuple[str, ...]:
        """How a person would write each tensor of the batch, e.g. `batch['labels']`."""
        return tuple(p for p, leaf in zip(self.paths, self.leaves, strict=True) if isinstance(leaf, TensorLeaf))

    @property
    def tensor_leaves(self) -> tuple[TensorLeaf, ...]:
        """The kind of each tensor of the batch."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, TensorLeaf))

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per tensor of the batch, for people."""
        return tuple(f"{path}: {leaf}" for path, leaf in zip(self.tensor_paths, self.tensor_leaves, strict=True))

    def tensors(self, batch: Any) -> list[Tensor]:
        """The tensors of `batch`, in order, in the captured strides; BatchMismatch where it has another form."""
        leaves, spec = pytree.tree_flatten(dict(batch) if self.wrapper and isinstance(batch, Mapping) else batch)
        if spec != self.spec:
            raise BatchMismatch(f"the batch has the structure {spec}, but the graph was captured for {self.spec}")
        tensors: list[Tensor] = []
        for path, expected, leaf in zip(self.paths, self.leaves, leaves, strict=True):
            if not isinstance(expected, TensorLeaf):
                if isinstance(leaf, Tensor) or not _same(leaf, expected):
                    raise BatchMismatch(
                        f"{path} is {shown(leaf)}, but the graph was captured for {shown(expected)}: capture again"
                    )
                continue
            if not isinstance(leaf, Tensor):
                raise BatchMismatch(
                    f"{path} is {shown(leaf)}, but the graph was captured for {expected}: capture again"
                )
            if leaf.requires_grad:
                raise InputError(
                    f"{path} requires grad, but a step has gradients for parameters alone, so nothing would come back "
                    "to what it was made from: make it inside the loss function, or .detach() it"
                )
            got = TensorLeaf.of(leaf)
            if (got.shape, got.dtype, got.device) != (expected.shape, expected.dtype, expected.device):
                raise BatchMismatch(f"{path} is {got}, but the graph was captured for {expected}: capture again")
            if got.stride != expected.stride:
                leaf = torch.empty_strided(expected.shape, expected.stride, dtype=leaf.dtype, device=leaf.device).copy_(
                    leaf
                )
            tensors.append(leaf)
        if _sharing([x for x in leaves if isinstance(x, Tensor)]) != self.sharing:
            raise BatchMismatch("other tensors of the batch share their storage than at the capture: capture again")
        return tensors

    def own_tensors(self, batch: Any) -> list[Tensor]:
        """The tensors of `batch` themselves, in order, whatever their strides."""
        leaves = pytree.tree_leaves(dict(batch) if self.wrapper and isinstance(batch, Mapping) else batch)
        return [x for x in leaves if isinstance(x, Tensor)]

    def rebuild(self, tensors: Sequence[Tensor]) -> Any:
        """A batch of this form around `tensors`."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, TensorLeaf) else leaf for leaf in self.leaves]
        batch = pytree.tree_unflatten(leaves, self.spec)
        return self.wrapper(batch) if self.wrapper else batch


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and (same(one, other, {}) or (not isinstance(one, PLAIN) and bool(one == other)))


def _sharing(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(x.untyped_storage()._cdata, k) if x.layout is torch.strided else k
        for k, x in enumerate(tensors)
    )
