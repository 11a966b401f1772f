"""Lifetimes and uses against a table made by hand, and against the generated program, read line by line."""

import ast
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.graph.step_graph import StepGraph
from lowtide.records.vocabulary import Phase, Role
from tests.zoo import ZOO, often


class Views(nn.Module):
    """A storage that lives on through a view: h dies as a name, but its transpose is what backward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4, bias=False)

    def forward(self, x: Tensor) -> Any:
        """A scalar."""
        h = self.a(x)
        t = h.t()
        return (t * t).sum()


def capture_views() -> StepGraph:
    model = Views()
    return lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 3))


def test_a_table_made_by_hand() -> None:
    graph = capture_views()
    table = [(op.rank, op.op, op.phase.value, op.is_view) for op in graph.ops]
    assert table == [
        (0, "aten.t.default", "forward", True),  # weight.t()
        (1, "aten.mm.default", "forward", False),  # h
        (2, "aten.t.default", "forward", True),  # h.t(): a second name for h
        (3, "aten.mul.Tensor", "forward", False),
        (4, "aten.sum.default", "forward", False),
        (5, "aten.ones.default", "backward", False),
        (6, "aten.expand.default", "backward", True),
        (7, "aten.mul.Tensor", "backward", False),  # ones * h.t()
        (8, "aten.mul.Tensor", "backward", False),
        (9, "aten.add.Tensor", "backward", False),  # summed into the first, as autograd does
        (10, "aten.t.default", "backward", True),
        (11, "aten.t.default", "backward", True),
        (12, "aten.mm.default", "backward", False),  # the weight's gradient
        (13, "aten.t.default", "backward", True),
        (14, "aten.t.default", "backward", True),
        (15, "lowtide.update", "optimizer", False),
    ]
    (h,) = graph.activations
    assert (h.created, h.last_fw_use, h.first_bw_use, h.last_bw_use) == (1, 3, 7, 8)
    lives = {graph.storages[s].name: (life.created, life.last) for s, life in graph.lifetimes.items()}
    assert lives["mm"] == (1, 8)
    assert lives["mul"] == (3, 4)
    assert lives["ones_default"] == (5, 8)
    assert lives["mm_1"] == (12, 15)
    # Bytes: weight 4x3, batch 2x3, h 2x4, each of four bytes; then what lives at each op.
    resident = 48 + 24
    assert graph.resident_bytes == resident
    assert [live - resident for live in graph.live_bytes] == [
        0, 32, 32, 64, 68, 40, 40, 72, 104, 68, 36, 36, 84, 52, 52, 52,
    ]  # fmt: skip


class Walker(ast.NodeVisitor):
    """Reads the generated program as a person would: which names each line uses, and when each name is dropped."""

    def __init__(self, source: str) -> None:
        self.lines: list[tuple[set[str], set[str], set[str]]] = []
        for line in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            made = {n.id for n in ast.walk(line) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            used = {n.id for n in ast.walk(line) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            dropped = {n.id for n in ast.walk(line) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
            self.lines.append((made, used, dropped))


def brute_force(graph: StepGraph) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int, int]]]:
    """Lifetimes and activation uses, by walking the program and following every name to its storage."""
    storage_of = {made.name: made.storage for op in graph.ops if op.phase != Phase.OPTIMIZER for made in op.outputs}
    by_name = {op.name: op for op in graph.ops}
    held: dict[str, int] = {}
    alive: dict[int, tuple[int, int]] = {}
    uses: dict[int, list[int]] = {}
    updates = iter(op for op in graph.ops if op.phase is Phase.OPTIMIZER)
    rank = -1
    for made, used, dropped in Walker(graph.program.source).lines:
        op = next((by_name[name] for name in made if name in by_name), None)
        if "update" in used:
            *_, op = updates  # all of them in one line
        if op is not None:
            rank = op.rank
            for name in used & held.keys():
                if not op.is_view:
                    uses.setdefault(held[name], []).append(rank)
            for storage in op.makes:
                alive[storage] = (rank, rank)
        for name in made & storage_of.keys():
            held[name] = storage_of[name]
        if op is not None and op.overwrites is not None:
            held = {name: storage for name, storage in held.items() if storage != op.overwrites}
        for storage in held.values():
            if storage in alive:
                alive[storage] = (alive[storage][0], rank)
        for name in dropped:
            held.pop(name, None)
    first_backward = next(op.rank for op in graph.ops if op.phase is Phase.BACKWARD)
    activations = {}
    for storage, ranks in uses.items():
        backward = [r for r in ranks if r >= first_backward]
        born = alive[storage][0] if storage in alive else None
        if born is not None and born < first_backward and backward:
            activations[storage] = (max([born, *(r for r in ranks if r < first_backward)]), backward[0], backward[-1])
    return alive, activations


def check_against_brute_force(graph: StepGraph) -> None:
    """Every lifetime and every use is what walking the program finds."""
    alive, activations = brute_force(graph)
    assert {s: (life.created, life.last) for s, life in graph.lifetimes.items()} == alive
    found = {u.storage: (u.last_fw_use, u.first_bw_use, u.last_bw_use) for u in graph.activations}
    gradients = {s.index for s in graph.storages if s.role is Role.GRADIENT}
    assert found == {s: uses for s, uses in activations.items() if s not in gradients}


@pytest.mark.parametrize("name", often(always=["bert", "resnet"]))
def test_brute_force_agrees(name: str) -> None:
    case = ZOO[name]()
    graph = lowtide.capture(case.model, torch.optim.Adam(case.model.parameters()), case.batch, case.loss)
    check_against_brute_force(graph)


def test_the_views_too() -> None:
    check_against_brute_force(capture_views())
