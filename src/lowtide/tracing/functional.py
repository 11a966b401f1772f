"""Makes a flat aten graph pure: in-place ops become out-of-place ones, except the final writes into the inputs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.kernels.draw import DRAWS, draw
from lowtide.kernels.strides import restride, same_strides
from lowtide.tracing.recorder import ORIGIN, Origin, new_nodes
from lowtide.tracing.true_strides import correct_strides

aten = torch.ops.aten
_FRESH = {
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}


class _Inherit(TorchDispatchMode):
    """Gives the nodes of the new graph the Origin of the old node that is being interpreted."""

    origin: Origin | None = None

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        mode = get_proxy_mode()
        assert mode is not None, "functionalising works inside make_fx only"
        last = mode.tracer.graph._root.prev
        out = func(*args, **(kwargs or {}))
        made = list(new_nodes(mode.tracer.graph, last))
        correct_strides(func, args, out, made)
        for node in made:
            node.meta[ORIGIN] = self.origin
        return out


class _Replay(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, inherit: _Inherit) -> None:
        super().__init__(module)
        self._inherit = inherit

    def run_node(self, n: fx.Node) -> Any:
        # What is made anew for the outputs belongs to the last op.
        self._inherit.origin = n.meta.get(ORIGIN) or self._inherit.origin
        made = super().run_node(n)
        fresh = isinstance(n.target, OpOverload) and all(r.alias_info is None for r in n.target._schema.returns)
        return pytree.tree_map(_as_traced, made, n.meta["val"]) if fresh and "val" in n.meta else made


def _as_traced(made: Any, traced: Any) -> Any:
    """A pure form may leave a result in other strides than the op that it stands for (`rrelu_with_noise` does)."""
    if not isinstance(made, Tensor) or not isinstance(traced, Tensor) or same_strides(made, traced.stride()):
        return made
    return restride(made, list(traced.stride()))


def lift_constants(module: fx.GraphModule) -> list[Tensor]:
    """Turn the tensors that the trace met outside its inputs into inputs too; returns them in order."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    lifted: dict[str, fx.Node] = {}
    tensors: list[Tensor] = []
    last = placeholders[-1]
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        target = str(node.target)
        if target not in lifted:
            value = module
            for part in target.split("."):
                value = getattr(value, part)
            with graph.inserting_after(last):
                last = graph.placeholder(f"constant_{len(tensors)}")
            last.meta["val"] = node.meta.get("val")
            lifted[target] = last
            tensors.append(value)  # type: ignore[arg-type]
        node.replace_all_uses_with(lifted[target])
        graph.erase_node(node)
    return tensors


def draws_become_pure(graph: fx.Graph) -> None:
    """Replace in-place random ops by `lowtide::draw` into the strides that eager draws into."""
    for node in list(graph.nodes):
        if node.target not in DRAWS:
            continue
        target, *numbers = node.args
        assert isinstance(target, fx.Node)
        value: FakeTensor = node.meta["val"]
        numbers += [v for k, v in node.kwargs.items() if k != "generator"]
        with graph.inserting_before(node):
            drawn = graph.call_function(
                draw,
                (DRAWS[node.target], list(value.shape), list(value.stride())),
                {
                    "dtype": value.dtype,
                    "device": value.device,
                    "arguments": [float(x) for x in numbers if x is not None],
                },
            )
            drawn.meta = dict(node.meta)
        fresh = target.target in _FRESH and _first_use(target) is node
        if fresh:
            node.replace_all_uses_with(drawn)
            graph.erase_node(node)
            target.replace_all_uses_with(drawn)
            graph.erase_node(target)
        else:
            with graph.inserting_before(node):
                copied = graph.call_function(aten.copy_.default, (target, drawn))
                copied.meta = dict(node.meta)
            node.replace_all_uses_with(copied)
            graph.erase_node(node)
    graph.lint()


def _first_use(node: fx.Node) -> fx.Node | None:
    place = {n: k for k, n in enumerate(node.graph.nodes)}
    return min(node.users, key=place.__getitem__, default=None)


def functionalize(module: fx.GraphModule, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """The same computation without in-place ops; every node keeps its Origin.

    This is the functionalisation below `torch.func.functionalize`, not that function itself: functorch, around it,
    replaces some ops (`binary_cross_entropy_with_logits`) by formulas of its own, which round differently.
    """
    inherit = _Inherit()  # type: ignore[no-untyped-call]

    def pure(*args: Tensor) -> Any:
        wrapped = [torch._to_functional_tensor(x) for x in args]
        with inherit:
            torch._enable_functionalization(reapply_views=True)
            try:
                out = _Replay(module, inherit).run(*wrapped)
            finally:
                torch._disable_functionalization()
            for x, functional in zip(args, wrapped, strict=True):
                value = _newest(functional)
                if value is not x:
                    x.copy_(value)
            return pytree.tree_map_only(Tensor, _newest, out)

    with torch.no_grad(), torch._C._DisableAutocast():
        return make_fx(pure, tracing_mode="fake")(*(tensor.detach() for tensor in inputs))


def _newest(functional: Tensor) -> Tensor:
    """What a functional tensor stands for, with all that was written into it."""
    if not torch._is_functional_tensor(functional):
        return functional
    torch._sync(functional)  # type: ignore[attr-defined, no-untyped-call]
    return torch._from_functional_tensor(functional)
