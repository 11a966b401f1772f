"""Ops written into the graph without make_fx are written as make_fx writes them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import lowtide
from lowtide.tracing import functional, noted, recorder
from lowtide.tracing.recorder import ORIGIN
from tests.zoo import ZOO, often


def _told(graph: lowtide.StepGraph) -> list[tuple[object, ...]]:
    """All that later passes know of each node; storages by the order in which they come."""
    storages: dict[int, int] = {}

    def form(x: Tensor) -> tuple[object, ...]:
        storage = storages.setdefault(x.untyped_storage()._cdata, len(storages))
        return x.shape, x.stride(), x.storage_offset(), x.dtype, x.device, storage

    return [
        (
            *(n.name, n.target, str(n.args), str(n.kwargs), n.meta.get(ORIGIN)),
            *(form(x) for x in pytree.tree_leaves(n.meta.get("val")) if isinstance(x, Tensor)),
        )
        for n in graph.graph.nodes
    ]


@pytest.mark.parametrize("name", often())
def test_a_graph_is_the_one_of_make_fx(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO[name]()
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)
    passed_on: list[str] = []
    written: list[str] = []

    def by_make_fx(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        passed_on.append(str(func))
        return func(*args, **kwargs)

    track = noted._track

    def counted(*args: Any) -> Tensor:
        written.append("")
        return track(*args)

    lowtide.capture(case.model, optimizer, case.batch, case.loss)  # torch's cache of fake results differs from no cache
    graphs = []
    for write in (noted.noted, by_make_fx):
        monkeypatch.setattr(recorder, "noted", write)
        monkeypatch.setattr(functional, "noted", write)
        monkeypatch.setattr(noted, "_track", counted)
        graphs.append(_told(lowtide.capture(case.model, optimizer, case.batch, case.loss)))
    assert graphs[0] == graphs[1]
    assert passed_on
    assert len(written) > len(passed_on) / 2, "few ops were written without make_fx"
