"""Notes where every traced op comes from: phase, module, the user's line, the forward op behind a backward one."""

import random
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lowtide.errors import CaptureError
from lowtide.records.vocabulary import Phase
from lowtide.tracing.known import KnownValues, looks_at_values
from lowtide.tracing.noted import noted
from lowtide.tracing.real_writes import RealWrites
from lowtide.tracing.signature import Signature
from lowtide.tracing.source import inside_checkpoint, user_line
from lowtide.tracing.true_strides import correct_strides, true_aliases
from lowtide.tracing.value_dependent import refuse_fast_path

ORIGIN = "lowtide_origin"
aten = torch.ops.aten
_EMBEDDINGS: dict[OpOverload, str] = {aten.embedding.default: "sparse", aten._embedding_bag.default: "sparse"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an op comes from."""

    phase: Phase
    module: str
    source: str
    call: int
    """A number that all ops of one traced call share."""
    forward_call: int | None = None
    """Of a backward op: the call that it is the backward of."""
    in_place: str = ""
    """The in-place op that eager runs here, which functionalising turns into its pure form."""


def is_traced(x: object) -> bool:
    """Is it a tensor of a trace, outside of torch's own work on it?"""
    return type(x) is FakeTensor and not x.fake_mode.in_kernel_invocation


@contextmanager
def unwatched() -> Iterator[None]:
    """What runs inside is the tracer, not the user's code."""
    watching: Any = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(watching)


def new_nodes(graph: fx.Graph, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes that were appended to `graph` after `last`."""
    node = graph._root.prev
    while node is not last and node is not graph._root:
        yield node
        node = node.prev


class Recorder(TorchDispatchMode):
    """Sits above the tracer, sees every aten call, and writes an Origin on the nodes that the call makes."""

    def __init__(self, model: nn.Module, known: KnownValues, writes: RealWrites) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = known
        self._writes = writes
        self.signature = Signature()
        self._model = model
        self.calls_of_model = 0
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._modules: list[str] = [""]
        self._calls = 0
        self._by_sequence: dict[int, Origin] = {}
        self._backward_of: Origin | None = None
        self.phase = Phase.FORWARD
        self.last_line = ""
        """Of the newest forward op: where the loss was made, once forward is over."""
        self.checkpoint_at = ""
        """Where torch.utils.checkpoint was first seen; raising from inside of it would end the process."""
        self._random = random_states()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default and is_traced(args[0]):  # what is asked most, by far
            return args[0].fake_device
        with unwatched():
            if func.namespace == "prim":  # a question about a tensor: raising here ends the process
                return func(*args, **(kwargs or {}))
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        origin = self._origin()
        if self.phase is Phase.FORWARD:
            self._watch(origin)
        mode = get_proxy_mode()
        assert mode is not None, "the recorder works inside make_fx only"
        graph = mode.tracer.graph
        last = graph._root.prev
        _refuse(func, args, kwargs, origin)
        if looks_at_values(func, args):
            answer = self._known.ask(func, args, kwargs, origin.source)
            if answer is not None:
                return answer
        func, args, kwargs = self._known.sized(func, args, kwargs, origin.source)
        self._writes.note(func, args, kwargs)
        try:
            with true_aliases(func, args):
                out = noted(mode, func, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise CaptureError(_data_dependent(func, origin)) from None
        except UnsupportedOperatorException:
            raise CaptureError(
                f"{func} at {origin.source} has no meta implementation, so its output is not known before it runs: "
                "register one with torch.library.register_fake"
            ) from None
        if isinstance(out, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise CaptureError(_data_dependent(func, origin))
        if any(isinstance(x, Tensor) and _has_symbols(x) for x in tree_leaves(out)):
            raise CaptureError(_data_dependent(func, origin))
        made = list(new_nodes(graph, last))
        correct_strides(func, args, out, made)
        self._known.follow(func, args, kwargs, out)
        if self.phase is Phase.FORWARD:
            self.signature.note(func, args, kwargs, out)
        origin = replace(origin, in_place=_eager_in_place(func, self.phase))
        for node in made:
            node.meta[ORIGIN] = origin
        if made and self.phase is Phase.FORWARD:
            # Autograd numbers its nodes as it makes them, just before the op itself runs.
            self._by_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, origin)
        return out

    def _watch(self, origin: Origin) -> None:
        """Notice in forward what leaves no op behind."""
        self.last_line = origin.source or self.last_line
        if not self.checkpoint_at and inside_checkpoint():
            self.checkpoint_at = origin.source
        if random_states() != self._random:
            raise CaptureError(foreign_random(f"at or just before {origin.source}"))

    def _origin(self) -> Origin:
        self._calls += 1
        if self.phase is Phase.FORWARD:
            return Origin(self.phase, self._modules[-1], user_line(), self._calls)
        behind = self._backward_of
        if behind is None:
            return Origin(self.phase, "", user_line(), self._calls)
        return replace(behind, phase=self.phase, call=self._calls, forward_call=behind.call, in_place="")

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module is running."""

        def enter(module: nn.Module, args: Any) -> None:
            refuse_fast_path(module)
            self.calls_of_model += module is self._model
            self._modules.append(self._paths.get(id(module), self._modules[-1]))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self._modules.pop()

        with ExitStack() as stack:
            stack.callback(module_hooks.register_module_forward_pre_hook(enter).remove)
            stack.callback(module_hooks.register_module_forward_hook(leave, always_call=True).remove)
            yield

    def follow_backward(self, loss: Tensor) -> None:
        """From here on ops are backward's; each takes its module and line from the forward op it belongs to."""
        self.phase = Phase.BACKWARD
        recorded = sorted(self._by_sequence)
        seen, stack = set(), [loss.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            place = bisect_right(recorded, node._sequence_nr())
            if place:
                node.register_prehook(self._enter_backward(self._by_sequence[recorded[place - 1]]))
            stack.extend(parent for parent, _ in node.next_functions)

    def _enter_backward(self, origin: Origin) -> Callable[[Any], None]:
        def enter(gradients: Any) -> None:
            self._backward_of = origin

        return enter


def _eager_in_place(func: OpOverload, phase: Phase) -> str:
    """The in-place op that eager runs: `func` itself, or, where autograd sums gradients, an addition into the first."""
    if func is aten.add.Tensor and phase is Phase.BACKWARD:
        return str(aten.add_.Tensor)
    return str(func) if func._schema.name.endswith("_") else ""


def _has_symbols(x: Tensor) -> bool:
    """Does its shape depend on values? Asking torch takes long, and nearly all shapes are plain numbers."""
    return any(type(size) is not int for size in x.shape) and bool(free_unbacked_symbols(x))


def random_states() -> tuple[object, ...]:
    """The states of the generators that a trace does not see: Python's and numpy's."""
    return random.getstate(), *_numpy_state()


def _numpy_state() -> tuple[bytes, int]:
    state: Any = np.random.get_state(legacy=False)
    return state["state"]["key"].tobytes(), state["state"]["pos"]


def foreign_random(where: str) -> str:
    """The message about random numbers that are not torch's."""
    return (
        f"the step draws random numbers from Python's or numpy's generator {where}, and a graph would repeat them "
        "for ever: draw them with torch, or outside the step and put them into the batch"
    )


def _refuse(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], origin: Origin) -> None:
    """Raise for what a trace would accept and get wrong."""
    if func is aten._local_scalar_dense.default and not isinstance(args[0], FakeTensor):
        raise CaptureError(_data_dependent(func, origin))
    if func in _EMBEDDINGS:
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        if named.get(_EMBEDDINGS[func]):
            raise CaptureError(
                f"the embedding at {origin.source} makes sparse gradients (module {origin.module or 'loss'!r}), "
                "which cannot be planned: build it with sparse=False"
            )
    if kwargs.get("generator") is not None:
        raise CaptureError(
            f"{func} at {origin.source} draws from a generator of its own, which a captured step cannot replay: "
            "use torch's global generator"
        )


def data_dependent(line: str, what: str) -> str:
    """The message about a step that depends on values."""
    return (
        f"{line}: {what}, so the step is not the same graph for every batch: "
        "keep it a tensor (torch.where, masks), or compute it outside the step and put it into the batch"
    )


def _data_dependent(func: OpOverload, origin: Origin) -> str:
    if func is aten._local_scalar_dense.default:
        return data_dependent(
            origin.source, "a tensor's value is read as a Python number (.item(), if tensor:, float(tensor))"
        )
    return data_dependent(origin.source, f"{func} makes a tensor whose shape depends on values")
