"""`lowtide::eager` and `lowtide::eager_gradient`: a function of torch, and its gradient as eager computes it.

Some derivatives are computed in another way when a value is zero, or when a tensor is a fake one. A trace cannot
follow that, so these two are not looked into: they run the function, and autograd on it, on the real tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from lowtide.kernels.dispatch import as_the_user
from lowtide.kernels.strides import restride

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("eager(Tensor[] tensors, str call) -> Tensor")
_library.define("eager_gradient(Tensor gradient, Tensor[] tensors, str call, bool[] wanted) -> Tensor[]")
_calls: dict[str, "EagerCall"] = {}


class _Tensor:
    """Stands where a call has a tensor."""

    def __repr__(self) -> str:
        return "_"


_TENSOR = _Tensor()


@dataclass(frozen=True)
class EagerCall:
    """A call of a function of torch with the tensors among its arguments left out; `name` says which call it is."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    spec: pytree.TreeSpec

    @classmethod
    def of(
        cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple["EagerCall", list[Tensor]]:
        """Take a call apart into its form, which is known by its name from here on, and its tensors."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        arguments = tuple(_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        plain, named = pytree.tree_unflatten(arguments, spec)
        shown = [*map(repr, plain), *(f"{key}={value!r}" for key, value in named.items())]
        name = f"{function.__qualname__}({', '.join(shown)})"
        return _calls.setdefault(name, cls(name, function, arguments, spec)), tensors

    def __call__(self, tensors: list[Tensor]) -> Any:
        """Call it with other tensors."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self.arguments]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


@contextmanager
def _as_eager() -> Iterator[None]:
    with as_the_user(), torch._C._DisableAutocast():
        yield


def _eager(tensors: list[Tensor], call: str) -> Tensor:
    with _as_eager(), torch.no_grad():
        result: Tensor = _calls[call](tensors)
        return result


def _eager_gradient(gradient: Tensor, tensors: list[Tensor], call: str, wanted: list[bool]) -> list[Tensor]:
    with _as_eager(), torch.enable_grad():
        leaves = [x.detach().requires_grad_(want) for x, want in zip(tensors, wanted, strict=True)]
        inputs = [x for x, want in zip(leaves, wanted, strict=True) if want]
        gradients = torch.autograd.grad(_calls[call](leaves), inputs, gradient)
    given = []
    for x, found in zip(inputs, gradients, strict=True):
        # Where eager's own choice of strides depends on values, the graph's does not.
        strides = _strides(x)
        own = found.stride() == strides and found.data_ptr() != gradient.data_ptr()
        given.append(found if own else restride(found, list(strides)))
    return given


def _strides(x: Tensor) -> tuple[int, ...]:
    return torch.empty_like(x, device="meta").stride()


def _eager_fake(tensors: list[Tensor], call: str) -> Tensor:
    with torch._C._DisableAutocast():
        made: Tensor = _calls[call](tensors)
    return made


def _eager_gradient_fake(gradient: Tensor, tensors: list[Tensor], call: str, wanted: list[bool]) -> list[Tensor]:
    return [torch.empty_like(x) for x, want in zip(tensors, wanted, strict=True) if want]


_library.impl("eager", _eager, "CompositeExplicitAutograd")
_library.impl("eager_gradient", _eager_gradient, "CompositeExplicitAutograd")
torch.library.register_fake("lowtide::eager", _eager_fake, lib=_library)
torch.library.register_fake("lowtide::eager_gradient", _eager_gradient_fake, lib=_library)

eager: OpOverload = torch.ops.lowtide.eager.default
eager_gradient: OpOverload = torch.ops.lowtide.eager_gradient.default
