"""The graph as a Python program that drops each value after its last use, and the functions it calls."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch._ops import OpOverload

from lowtide.graph.lifted import Lifted
from lowtide.graph.ops import Op, run_ends
from lowtide.kernels.boundary import boundary, opening
from lowtide.kernels.dispatch import set_grad_mode
from lowtide.kernels.effects import in_place_form
from lowtide.kernels.swap import SWAP_OPS, WAITS
from lowtide.optimizer.update import Ledger, update

FILE_NAME = "<lowtide program>"
"""Of the generated code, in tracebacks."""
_PLAIN = (int, float, bool, str, type(None))


@dataclass(frozen=True)
class Program:
    """Source and function of `step(inputs, ledger)`, which returns the graph's outputs.

    It runs `below_autograd`. `inputs` is a list that the program empties, so that nothing is held
    longer than needed.
    """

    source: str
    run: Callable[..., list[Any]]
    rank_of_line: dict[int, int]
    """Which op each line of the source belongs to."""
    halves: "Halves | None" = None
    """Where the step has a boundary."""


@dataclass(frozen=True)
class Halves:
    """A step that is called twice. What crosses the boundary is handed from one half to the other as a list."""

    forward: Callable[[list[Any], Ledger], tuple[list[Any], list[Any]]]
    """Of the inputs, which it empties: the outputs of forward, and what backward needs."""
    backward: Callable[[list[Any], list[Any], Ledger], list[Any]]
    """Of that and the gradients of the outputs, both of which it empties: the other results."""
    crossing: tuple[str, ...]
    """Names of what backward needs, in order."""

    def whole(self, op: Op) -> Callable[[list[Any], Ledger], list[Any]]:
        """Both in turn, with stand-ins for the gradients that come in at `op`; nobody holds what forward returns."""

        forms: Any = op.node.args[2]
        device = op.node.meta["val"][0].device

        def run(inputs: list[Any], ledger: Ledger) -> list[Any]:
            outputs, saved = self.forward(inputs, ledger)
            _, *gradients = boundary(outputs, opening(device), forms)
            outputs.clear()
            return self.backward(saved, gradients, ledger)

        return run


def deaths(ops: Sequence[Op], kept: Sequence[fx.Node]) -> list[list[str]]:
    """For each op, the values to drop behind it: those it reads for the last time or makes for nobody."""
    last: dict[fx.Node, int] = {}
    ends = run_ends(ops)
    for op in ops:
        for node in (op.node, *op.items):
            last[node] = op.rank
        for node in op.node.all_input_nodes:
            last[node] = ends.get(op.rank, op.rank)
    for node in kept:
        last.pop(node, None)
    dead: list[list[str]] = [[] for _ in ops]
    for node, rank in last.items():
        if node.op != "placeholder" and not _holds_nothing(node):
            dead[rank].append(node.name)
    return dead


def _holds_nothing(node: fx.Node) -> bool:
    """An op whose outputs are taken apart is dropped at once; an update or a wait returns nothing."""
    return node.target is update or node.target in WAITS or any(u.target is operator.getitem for u in node.users)


def write_program(graph: fx.Graph, ops: Sequence[Op], grad_mode: Callable[[Op], bool]) -> Program:
    """Generate and compile the program for `ops`, in their order; `grad_mode` says in which mode each of them runs."""
    results = results_of(graph)
    names: dict[str, Any] = {"update": update, "set_grad_mode": set_grad_mode}
    placeholders = [node.name for node in graph.nodes if node.op == "placeholder"]
    lines = ["def step(inputs, ledger):"]
    lines += [f"    {', '.join(placeholders)}, = inputs", "    inputs.clear()"]
    mode: bool | None = None
    first: Op | None = None
    whole = all(op.node.target is not boundary for op in ops)
    crossing: list[str] = []
    ends = run_ends(ops)
    rank_of_line: dict[int, int] = {}
    for op, dead in zip(ops, deaths(ops, late_results(graph, ops)), strict=True):
        if mode != grad_mode(op):
            mode = grad_mode(op)
            lines.append(f"    set_grad_mode({mode})")
        if op.node.target is boundary:
            crossing = [node.name for node in crossing_values(graph, ops, op)]
            returned: Any = op.node.args[0]
            lines.append(f"    return [{_texts(returned, names)}], [{', '.join(crossing)}]")
            lines.append("def rest(saved, gradients, ledger):")
            lines += [f"    {', '.join(crossing)}, = saved"] if crossing else []
            arrived = [(item.name, int(str(item.args[1])) - 1) for item in op.items if item.users]
            lines += [f"    {name} = gradients[{place}]" for name, place in arrived]
            lines += ["    saved.clear()", "    gradients.clear()"]
            results, first, mode = results[len(returned) :], op, None
            dead = []
        elif not op.is_update:
            lines.append("    " + call_text(op, names))
        elif ends[op.rank] == op.rank:
            together: list[Any] = [other.node.args for other in ops[: op.rank + 1] if ends.get(other.rank) == op.rank]
            parameters, gradients = ([node for args in together for node in args[k]] for k in (0, 1))
            given = [text_of(parameters, names), text_of(gradients, names), *keywords_text(op.node, names)]
            lines.append(f"    update(ledger, {', '.join(given)})")
        if op.items and op.node.target is not boundary:
            lines += [f"    {item.name} = {op.node.name}[{item.args[1]}]" for item in op.items]
            lines.append(f"    del {op.node.name}")
        if whole and results[0] in (op.node, *op.items):
            lines.append(f"    ledger.loss_is({results[0].name})")
        if dead:
            lines.append(f"    del {', '.join(dead)}")
        rank_of_line |= dict.fromkeys(range(max(rank_of_line, default=3) + 1, len(lines) + 1), op.rank)
    lines.append(f"    return [{_texts(results, names)}]")
    source = "\n".join(lines) + "\n"
    scope = dict(names)
    exec(compile(source, FILE_NAME, "exec"), scope)
    if first is None:
        return Program(source, scope["step"], rank_of_line)
    halves = Halves(scope["step"], scope["rest"], tuple(crossing))
    return Program(source, halves.whole(first), rank_of_line, halves)


def results_of(graph: fx.Graph) -> list[Any]:
    """What the step returns."""
    results: Any = next(node for node in graph.nodes if node.op == "output").args[0]
    return list(results)


def late_results(graph: fx.Graph, ops: Sequence[Op]) -> list[fx.Node]:
    """The results that must be there at the end; those of forward are the caller's from the boundary on."""
    returned: Any = next((op.node.args[0] for op in ops if op.node.target is boundary), ())
    return [node for node in results_of(graph)[len(returned) :] if isinstance(node, fx.Node)]


def crossing_values(graph: fx.Graph, ops: Sequence[Op], boundary: Op) -> list[fx.Node]:
    """The values from before `boundary` that something behind it reads or returns."""
    late = {node for op in ops[boundary.rank :] for node in (op.node, *op.items)}
    wanted = [node for op in ops[boundary.rank + 1 :] for node in op.node.all_input_nodes]
    wanted += late_results(graph, ops)
    return [node for node in dict.fromkeys(wanted) if node not in late]


def _texts(values: Sequence[Any], names: dict[str, Any]) -> str:
    return ", ".join(text_of(value, names) for value in values)


def call_text(op: Op, names: dict[str, Any]) -> str:
    """The line of Python that runs `op`; what it refers to is added to `names`."""
    function = function_of(op)
    name = str(function).replace(".", "_") if isinstance(function, OpOverload) else function.__name__
    names[name] = function._op if isinstance(function, OpOverload) else function
    ledger = "ledger, " if function in SWAP_OPS else ""
    result = "" if function in WAITS else f"{op.node.name} = "
    return f"{result}{name}({ledger}{arguments_text(op.node, names)})"


def function_of(op: Op) -> Callable[..., Any]:
    """What runs for `op`: the op itself, or its in-place form where its first argument dies with it."""
    target = op.node.target
    assert callable(target)
    if op.overwrites is None:
        return target
    assert isinstance(target, OpOverload)
    return in_place_form(target)


def arguments_text(node: fx.Node, names: dict[str, Any]) -> str:
    """The arguments of `node` as Python source."""
    return ", ".join([*(text_of(argument, names) for argument in node.args), *keywords_text(node, names)])


def keywords_text(node: fx.Node, names: dict[str, Any]) -> list[str]:
    """The keyword arguments of `node` as Python source."""
    return [f"{key}={text_of(value, names)}" for key, value in node.kwargs.items()]


def text_of(value: Any, names: dict[str, Any]) -> str:
    """`value` as Python source; what has no literal gets a name in `names`."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, list | tuple):
        inside = ", ".join(text_of(item, names) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    if isinstance(value, Lifted):
        names[f"_lifted_{value.number}"] = value
        return f"_lifted_{value.number}()"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if isinstance(value, _PLAIN):
        return repr(value)
    name = "_" + "".join(c if c.isalnum() else "_" for c in str(value))
    if names.setdefault(name, value) != value:
        raise AssertionError(f"two constants called {name}")
    return name


def prepare(
    op: Op, values: dict[str, Any], ledger: Ledger
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Function and arguments of one op, with `values` by node name: the program, a line at a time."""
    node = op.node
    args = fx.node.map_arg(node.args, lambda argument: values[argument.name])
    kwargs = fx.node.map_arg(node.kwargs, lambda argument: values[argument.name])
    args = tuple(argument() if isinstance(argument, Lifted) else argument for argument in args)
    if node.target is update:
        return update, (ledger, *args), kwargs
    function = function_of(op)
    if function in SWAP_OPS:
        return function, (ledger, *args), kwargs
    return function._op if isinstance(function, OpOverload) else function, args, kwargs


def store(op: Op, made: Any, values: dict[str, Any]) -> None:
    """Put what `op` made into `values`."""
    if op.items:
        for item in op.items:
            values[item.name] = made[item.args[1]]
    elif op.node.target is not update and op.node.target not in WAITS:
        values[op.node.name] = made
