"""Makes a flat aten graph pure: in-place ops become out-of-place ones, except the final writes into the inputs."""

import operator
from collections.abc import Container, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.kernels.draw import DRAWS, draw
from lowtide.kernels.effects import schema_writes
from lowtide.kernels.strides import restride, same_strides
from lowtide.tracing.noted import noted
from lowtide.tracing.recorder import ORIGIN, Origin, new_nodes
from lowtide.tracing.true_strides import correct_strides, true_aliases

aten = torch.ops.aten
_FRESH = {
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}


_CONSTANT = "lowtide_constant"
"""Key of the meta of inputs that the trace met outside of its own."""
_SOURCE = "lowtide_source"
"""Key of a node's meta while functionalising: the node that it comes from."""


class _Inherit(TorchDispatchMode):
    """Gives the nodes of the new graph the Origin of the old node that is being interpreted."""

    origin: Origin | None = None
    source: fx.Node | None = None

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        mode = get_proxy_mode()
        assert mode is not None, "functionalising works inside make_fx only"
        last = mode.tracer.graph._root.prev
        with true_aliases(func, args):
            out = noted(mode, func, args, kwargs or {})
        made = list(new_nodes(mode.tracer.graph, last))
        correct_strides(func, args, out, made)
        for node in made:
            node.meta |= {ORIGIN: self.origin, _SOURCE: self.source}
        return out


class _Replay(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, inherit: _Inherit) -> None:
        super().__init__(module)
        self._inherit = inherit

    def run_node(self, n: fx.Node) -> Any:
        self._inherit.origin, self._inherit.source = n.meta.get(ORIGIN), n.meta.get(_SOURCE)
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
            last.meta = {"val": node.meta.get("val"), _CONSTANT: True}
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


def functionalize(graph: fx.Graph, inputs: Sequence[Tensor]) -> fx.Graph:
    """The same computation without in-place ops; every node keeps its Origin. `inputs` is what it starts from.

    Most ops have nothing to do with bytes that are overwritten: they stay as they were traced. The others run once
    more, on the traced values, through torch's functionalisation, and what becomes of them takes their place.
    """
    mode = next(node.meta["val"].fake_mode for node in graph.nodes if isinstance(node.meta.get("val"), FakeTensor))
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    constants = [(node, x) for node, x in zip(placeholders, inputs, strict=True) if _CONSTANT in node.meta]
    for node, constant in constants:  # what the tracer notes of them, if anything, shares no bytes with their views
        node.meta["val"] = mode.from_tensor(constant.detach())
    changed = _in_need(graph, [node for node, _ in constants])
    if not changed:
        return graph
    given = list(dict.fromkeys(x for node in changed for x in node.all_input_nodes if x not in changed))
    wanted = [node for node in changed if any(user not in changed for user in node.users)]
    with mode, torch.no_grad(), torch._C._DisableAutocast():
        pure = _made_pure(_part(changed, given, wanted), [node.meta["val"] for node in given])
    return _merged(graph, changed, given, wanted, pure)


def _storages(node: fx.Node) -> set[int]:
    tensors = (x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor))
    return {x.untyped_storage()._cdata for x in tensors}


def _in_need(graph: fx.Graph, constants: Sequence[fx.Node]) -> dict[fx.Node, None]:
    """The ops, in order, that read or make bytes which something overwrites, or that read `constants`; and whatever
    looks at the bytes that they make."""
    storages = {node: _storages(node) for node in graph.nodes}
    special, seen = {s for node in constants for s in storages[node]}, set[int]()
    for node in graph.nodes:
        if isinstance(node.target, OpOverload):
            written = pytree.tree_leaves(schema_writes(node.target, node.args, node.kwargs))
            special |= {s for x in written if isinstance(x, fx.Node) for s in storages[x]}
            if node.target.namespace == "lowtide":
                special |= storages[node] & seen  # put in for an op in place, and what is noted of it is that one's
        seen |= storages[node]
    cold = {s for node in graph.nodes if node.op == "placeholder" for s in storages[node]} - special
    hot = set(special)
    changed: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        reads = {s for argument in node.all_input_nodes for s in storages[argument]}
        item = node.target is operator.getitem and node.args[0] in changed
        if item or reads & special or storages[node] & hot:
            changed[node] = None
            hot |= storages[node] - cold
        else:
            cold |= storages[node]
    return changed


def _part(changed: Iterable[fx.Node], given: Sequence[fx.Node], wanted: Sequence[fx.Node]) -> fx.GraphModule:
    """The ops that are `changed` as a program of their own, from what is `given` to what is `wanted`."""
    part = fx.Graph()
    copied = {node: part.placeholder(node.name) for node in given}
    for node in changed:
        copied[node] = part.node_copy(node, copied.__getitem__)
        copied[node].meta[_SOURCE] = node
    part.output([copied[node] for node in wanted])
    return fx.GraphModule({}, part)


def _made_pure(part: fx.GraphModule, values: Sequence[Tensor]) -> fx.Graph:
    """`part` traced once more, functionalised.

    This is the functionalisation below `torch.func.functionalize`, not that function itself: functorch, around it,
    replaces some ops (`binary_cross_entropy_with_logits`) by formulas of its own, which round differently.
    """
    inherit = _Inherit()  # type: ignore[no-untyped-call]

    def pure(*args: Tensor) -> Any:
        wrapped = [torch._to_functional_tensor(x) for x in args]
        with inherit:
            torch._enable_functionalization(reapply_views=True)
            try:
                out = _Replay(part, inherit).run(*wrapped)
            finally:
                torch._disable_functionalization()
            for x, functional in zip(args, wrapped, strict=True):
                value = _newest(functional)
                if value is not x:
                    x.copy_(value)
            return pytree.tree_map_only(Tensor, _newest, out)

    return make_fx(pure, _disable_torch_fn_metadata_mode=True)(*values).graph


def _merged(
    graph: fx.Graph, changed: Container[fx.Node], given: Sequence[fx.Node], wanted: Sequence[fx.Node], pure: fx.Graph
) -> fx.Graph:
    """`graph` with the ops of `pure` in the places of those that they come from; what writes into inputs at the end."""
    *placeholders, output = (node for node in pure.nodes if node.op in ("placeholder", "output"))
    stands_for = dict(zip(placeholders, given, strict=True)) | dict(zip(wanted, output.args[0], strict=True))
    made: dict[fx.Node | None, list[fx.Node]] = {}
    for node in pure.nodes:
        if node.op == "call_function":
            made.setdefault(node.meta.pop(_SOURCE), []).append(node)
    merged = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while node in stands_for:
            node = stands_for[node]
        return new[node]

    last: Origin | None = None
    for node in graph.nodes:
        last = node.meta.get(ORIGIN, last)
        if node.op == "output":
            for late in made.get(None, ()):
                late.meta[ORIGIN] = last
        here = made.get(node if node.op != "output" else None, [])
        for copied in here if node in changed else [*here, node]:
            new[copied] = merged.node_copy(copied, find)
    return merged


def _newest(functional: Tensor) -> Tensor:
    """What a functional tensor stands for, with all that was written into it."""
    if not torch._is_functional_tensor(functional):
        return functional
    torch._sync(functional)  # type: ignore[attr-defined, no-untyped-call]
    return torch._from_functional_tensor(functional)
