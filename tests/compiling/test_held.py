"""What the caller of a compiled graph holds while backward runs, and what dies as it does under torch's own backend."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import loops
from lowtide.device.meter import meter_for

CPU = torch.device("cpu")
TOKENS, WORDS, WIDTH = 64, 3000, 16
LOGITS = 4 * TOKENS * WORDS


class Language(nn.Module):
    """Returns logits beside the loss; backward ends with a gradient that is larger than all that it saves."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(100_000, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.table(x).tanh())
        return F.cross_entropy(logits, x), logits


def loss_alone(compiled: Any, x: Tensor) -> None:
    compiled(x)[0].backward()


def logits_kept(compiled: Any, x: Tensor) -> None:
    loss, _logits = compiled(x)
    loss.backward()


def loss_outside(compiled: Any, x: Tensor) -> None:
    F.cross_entropy(compiled(x)[1], x).backward()


def own_gradient(compiled: Any, x: Tensor) -> None:
    loss, logits = compiled(x)
    gradient = torch.ones_like(logits)
    torch.autograd.backward([loss, logits], [None, gradient])
    assert gradient.sum() == gradient.numel()


def trained(how: Any, step: Any, options: dict[str, Any] | None = None) -> tuple[list[int], list[Tensor]]:
    torch.manual_seed(0)
    model = Language()
    compiled = torch.compile(model, backend=how, options=options)
    peaks = []
    for _ in range(4):
        x = torch.randint(WORDS, (TOKENS,))
        model.zero_grad()
        meter = meter_for(CPU)
        meter.start()
        step(compiled, x)
        peaks.append(meter.stop().peak)
    return peaks, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("step", [loss_alone, logits_kept, loss_outside, own_gradient])
def test_outputs_and_their_gradients_die_as_in_aot_eager(step: Any) -> None:
    if not meter_for(CPU).free:
        pytest.skip("needs the allocator shim")
    (*_, peak), theirs = trained("aot_eager", step)
    (*_, free), _ = trained(backend, step)
    (*_, planned), ours = trained(backend, step, {"budget": "1GiB"})
    (loop,) = (loop for loop in loops.values() if loop.settings.budget is not None)
    assert peak - 64 <= free <= peak + 64
    assert peak - 64 <= planned <= peak + 64
    assert loop.predicted_peak is not None
    assert loop.measured_peak is not None
    assert abs(loop.predicted_peak - loop.measured_peak) < 0.1 * LOGITS
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_budget_that_only_fits_because_they_die_is_met() -> None:
    if not meter_for(CPU).free:
        pytest.skip("needs the allocator shim")
    theirs = trained("aot_eager", loss_alone)[1]
    trained(backend, loss_alone, {"budget": "1GiB"})
    (loop,) = loops.values()
    assert loop.measured_peak is not None
    budget = loop.measured_peak + LOGITS // 2
    loops.clear()
    torch._dynamo.reset()
    peaks, ours = trained(backend, loss_alone, {"budget": budget})
    (loop,) = loops.values()
    assert loop.measured_peak is not None
    assert loop.measured_peak <= budget
    assert max(peaks) + loop.measured_peak - peaks[-1] <= budget, "measuring and the first plans included"
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


class Checkpointed(nn.Module):
    """Runs unplanned."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: layer(x).sigmoid().tanh(), x, use_reentrant=False)
        return x


def test_what_runs_unplanned_takes_what_aot_eager_takes() -> None:
    if not meter_for(CPU).free:
        pytest.skip("needs the allocator shim")
    peaks = []
    given: list[tuple[Any, dict[str, Any] | None]] = [("aot_eager", None), (backend, {"budget": "1GiB"})]
    for how, options in given:
        torch.manual_seed(0)
        compiled = torch.compile(Checkpointed(), backend=how, options=options)
        for _ in range(2):
            meter = meter_for(CPU)
            meter.start()
            compiled(torch.ones(4096, 64)).sum().backward()
            peak = meter.stop().peak
        peaks.append(peak)
    (loop,) = loops.values()
    assert "torch.utils.checkpoint" in loop.unplanned[0]
    assert abs(peaks[0] - peaks[1]) < 1024
