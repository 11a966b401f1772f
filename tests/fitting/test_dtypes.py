"""Autocast and dropout as a GPU has them: bytes by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide.fitting.devices import find_device
from lowtide.fitting.dtypes import DTYPES, in_dtype
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.models import Training
from lowtide.records.vocabulary import Role

WIDTH, BATCH = 32, 64


class Net(nn.Module):
    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Any:
        return self.b(self.drop(self.norm(self.a(x)).tanh())).float().mean()


def drawn(dtype: str | None, p: float = 0.0, *, gpu: bool = True) -> Sketch:
    with torch.device("meta"):
        training = in_dtype(Training("net", Net(p), torch.ones(BATCH, WIDTH)), dtype)
    make = lambda m: torch.optim.AdamW(m.parameters(), fused=True)  # noqa: E731
    return sketch(training.model, make, training.batch, training.loss, find_device("h100").rates, gpu=gpu)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_stays_is_in_the_dtype_of_the_weights(dtype: str) -> None:
    storages = drawn(dtype).plain.graph.storages
    size = 4 if dtype.startswith(("fp32", "amp")) else 2
    held = {s.name: s.bytes for s in storages if s.role is Role.PARAMETER and s.resident}
    assert held["a.weight"] == size * WIDTH * WIDTH
    gradients = {s.bytes for s in storages if s.role is Role.GRADIENT}
    assert size * WIDTH * WIDTH in gradients


def test_autocast_multiplies_in_half_and_normalizes_in_float32() -> None:
    graph = drawn("amp-bf16").plain.graph
    made = {
        op.op.split(".")[1]: x.dtype
        for op in graph.ops
        if isinstance(x := op.node.meta.get("val"), Tensor) and op.phase == "forward"
    }
    assert made["addmm"] == torch.bfloat16
    assert made["tanh"] == torch.float32


def test_dropout_on_a_gpu_keeps_a_byte_for_each_number() -> None:
    def kept(gpu: bool) -> list[int]:
        storages = drawn("fp32", 0.1, gpu=gpu).plain.graph.storages
        return [s.bytes for s in storages if s.role is Role.ACTIVATION]

    assert BATCH * WIDTH in kept(gpu=True)
    assert BATCH * WIDTH not in kept(gpu=False)
    assert sum(kept(gpu=True)) < sum(kept(gpu=False))


def test_a_draw_on_a_gpu_is_still_random() -> None:
    step = drawn("fp32", 0.1)
    assert len(step.late.random) == 1
