"""The graphs of a loop by number, and which of their calls wait for backward."""

import weakref
from itertools import count

from lowtide.compiling.compiled_graph import CompiledGraph, Crossing


class Calls:
    """Knows graphs and calls only as long as somebody else does."""

    def __init__(self) -> None:
        self._numbers = count()
        self._graphs: dict[int, weakref.ref[CompiledGraph]] = {}
        self._open: list[tuple[int, weakref.ref[Crossing]]] = []

    def graphs(self) -> list[CompiledGraph]:
        """Those that are alive."""
        return [graph for graph in (ref() for ref in self._graphs.values()) if graph is not None]

    def graph(self, number: int) -> CompiledGraph | None:
        """The one of that number, where it is alive."""
        return self._graphs[number]() if number in self._graphs else None

    def number(self, graph: CompiledGraph) -> int:
        """Of `graph`, given to it at the first time."""
        for number, ref in self._graphs.items():
            if ref() is graph:
                return number
        number = next(self._numbers)
        self._graphs[number] = weakref.ref(graph)
        return number

    def opened(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """A forward of `graph` has run."""
        self._open.append((self.number(graph), weakref.ref(crossing)))

    def open(self) -> list[tuple[int, Crossing]]:
        """The calls whose backward has not ended, with the numbers of their graphs."""
        alive = [(number, ref, ref()) for number, ref in self._open]
        self._open = [(number, ref) for number, ref, crossing in alive if crossing is not None and not crossing.ended]
        return [(number, crossing) for number, _, crossing in alive if crossing is not None and not crossing.ended]

    def is_planned(self, number: int) -> bool:
        """Has the graph of that number a plan?"""
        graph = self.graph(number)
        return graph is not None and graph.point is not None
