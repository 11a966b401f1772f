"""Lifts a number that has changed between two traces out of the graph, so that further changes cost nothing."""

from dataclasses import dataclass
from typing import Any

from torch import fx

from lowtide.graph.lifted import FORMS, SCALING, Lifted
from lowtide.graph.program import text_of
from lowtide.watching.guards import Change


@dataclass(frozen=True, slots=True)
class Numbers:
    """The floats among the arguments of a graph's nodes, and everything else about it as text."""

    rest: tuple[str, ...]
    floats: tuple[tuple[float, ...], ...]
    """For each node, in the order of its arguments."""


def numbers_of(graph: fx.Graph) -> Numbers:
    """Take a graph apart."""
    rest, floats = [], []
    for node in graph.nodes:
        found: list[float] = []

        def text(value: Any, found: list[float] = found) -> str:
            if type(value) is float:
                found.append(value)
                return "#"
            if isinstance(value, list | tuple):
                return f"[{', '.join(map(text, value))}]"
            return text_of(value, {})

        arguments = [*map(text, node.args), *(f"{key}={text(value)}" for key, value in node.kwargs.items())]
        rest.append(f"{node.op} {node.target} {node.name}({', '.join(arguments)})")
        floats.append(tuple(found))
    return Numbers(tuple(rest), tuple(floats))


def lift(graph: fx.Graph, before: Numbers, change: Change) -> bool:
    """Replace the constants of `graph` that came from the changed value; False where that is not all that differs."""
    now = numbers_of(graph)
    if now.rest != before.rest or change.holder is None:
        return False
    found: list[tuple[fx.Node, str]] = []
    for node, old, new in zip(graph.nodes, before.floats, now.floats, strict=True):
        if old == new or repr(old) == repr(new):
            continue
        if node.target not in SCALING or len(old) != 1 or type(node.args[1]) is not float:
            return False
        forms = [n for n, form in FORMS.items() if form(change.before) == old[0] and form(change.after) == new[0]]
        if len(forms) != 1:
            return False
        found.append((node, forms[0]))
    for number, (node, form) in enumerate(found):
        constant = node.args[1]
        assert isinstance(constant, float)
        held = Lifted(constant, number, change.holder, change.key, form)
        node.args = (node.args[0], held, *node.args[2:])
    return bool(found)
