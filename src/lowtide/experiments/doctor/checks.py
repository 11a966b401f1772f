"""The checks of `lowtide doctor`: each trains or copies something small and compares it, bit for bit."""

import copy
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lowtide.device.meter import meter_for
from lowtide.device.swap import SwapSpace, open_space, usual_tier
from lowtide.errors import LowtideError
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger
from lowtide.planning.swaps import swaps_of
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import Lanes, StepProblem, problem_of
from lowtide.records.step_plan import Allowed
from lowtide.records.transfer import TransferSample
from lowtide.records.vocabulary import Phase, Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from lowtide.tracing.capture import capture
from lowtide.training.check import check
from lowtide.training.options import Options
from lowtide.training.train_step import TrainStep, train_step

TOLERANCE = 0.01
"""Of a predicted peak."""
_BLOCK = 4096
"""Swap space on disk is taken by so many bytes."""


class CheckFailed(LowtideError, RuntimeError):
    """Something is not as it must be here."""


def _counts(device: torch.device) -> str:
    """The allocator's counter sees what is taken, and what is given back."""
    meter, size = meter_for(device), 2**22
    meter.start()
    taken = torch.empty(size, dtype=torch.uint8, device=device)
    del taken
    kept = torch.empty(2**20, dtype=torch.uint8, device=device)
    seen = meter.stop()
    if not (size <= seen.peak <= size + 2**21 and 2**20 <= seen.net <= 2**20 + 4096):
        raise CheckFailed(f"4 MiB and then 1 MiB were taken, but {seen.peak} and {seen.net} bytes were counted")
    return f"{kept.numel()} bytes kept, {seen.peak} at the peak"


def _convnet(blocks: int = 6) -> nn.Module:
    layers = [
        layer
        for _ in range(blocks)
        for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout(0.1))
    ]
    return nn.Sequential(nn.Conv2d(3, 16, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def _encoder(layers: int = 3) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(512, 5))


def _images(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(16, 3, 16, 16).to(device), torch.randint(0, 5, (16,)).to(device)


def _sequences(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(32, 16, 32).to(device), torch.randint(0, 5, (32,)).to(device)


def _loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def _loss_in_bfloat16(model: nn.Module, batch: Any) -> Tensor:
    with torch.autocast(batch[0].device.type, torch.bfloat16):
        return _loss(model, batch)


def _trains(
    device: torch.device,
    model: nn.Module,
    batch: Any,
    loss: Any = _loss,
    make: Callable[..., Optimizer] = torch.optim.AdamW,
    budget: str = "75%",
    swaps: bool = False,
    **options: Any,
) -> str:
    """Three steps beside eager ones of a copy: all equal, the peak inside the budget and as predicted. With `swaps`
    the plan can do nothing but send values away."""
    model = model.to(device)
    theirs = copy.deepcopy(model)
    ours, eager = make(model.parameters(), lr=1e-2), make(theirs.parameters(), lr=1e-2)
    every = options.get("accumulate", 1)
    made = _swapping if swaps else train_step
    with made(model, ours, batch, loss, budget, time_limit=5, progress=False, **options) as step:
        assert step.plan is not None
        away = Forecast(step.plan).swapped_bytes
        if swaps and not away:
            raise CheckFailed(f"the plan for {step.plan.budget} bytes sends nothing away, and can do nothing else")
        peak = None  # not of every step, where measuring is not free
        for number in range(3 * every):
            torch.manual_seed(number)
            mine = step(batch)
            torch.manual_seed(number)
            value = loss(theirs, batch)
            value.backward()
            if number % every == every - 1:
                if "clip_grad_norm" in options:
                    nn.utils.clip_grad_norm_(theirs.parameters(), options["clip_grad_norm"])
                eager.step()
                eager.zero_grad()
            _expect_equal({"the loss": mine}, {"the loss": value.detach()}, number)
            _expect_equal(model.state_dict(), theirs.state_dict(), number)
            _expect_equal(_state(model, ours), _state(theirs, eager), number)
            peak = peak if step.measured_peak is None else step.measured_peak
            if peak is not None and peak > step.plan.budget:
                raise CheckFailed(f"step {number + 1} took {peak} bytes, the budget is {step.plan.budget}")
        predicted, allowed = step.predicted_peak, step.plan.budget
        if peak is None or predicted is None:
            raise CheckFailed("no step's peak was measured, so nobody knows whether the budget was kept")
        if every == 1 and abs(peak / predicted - 1) > TOLERANCE:
            raise CheckFailed(
                f"a step took {peak} bytes, predicted were {predicted}: {100 * (peak / predicted - 1):+.1f} %"
            )
        again = sum(op.purpose is not Purpose.PROGRAM for op in step.graph.ops)
    sent = f", {away} bytes off the device" if away else ""
    return f"3 steps equal; {peak} bytes of {allowed}, predicted {predicted}; {again} ops added by the plan{sent}"


def _swapping(
    model: nn.Module, optimizer: Optimizer, batch: Any, loss: Any, budget: str, *, time_limit: float, progress: bool
) -> TrainStep:
    """A step whose plan may not compute or pack anything again."""
    tier = usual_tier(next(model.parameters()).device)
    options = Options(
        *(budget, "optimal", None, 1, time_limit, progress, tier, None, "refuse", True),
        keep_gradients=False,
        forms=1,
        measure="before",
        allowed=Allowed(recompute=False, pack=False),
    )
    return TrainStep(model, optimizer, batch, loss, options, None)


def _state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
        if isinstance(value, Tensor)
    }


def _expect_equal(mine: dict[str, Any], theirs: dict[str, Any], number: int) -> None:
    wrong = [name for name in theirs if name not in mine or not torch.equal(mine[name], theirs[name])]
    if wrong:
        raise CheckFailed(f"after step {number + 1} {len(wrong)} of {len(theirs)} differ from eager's: {wrong[:3]}")


def _replays(device: torch.device) -> str:
    """Random numbers that are drawn again in backward are those of the first time, and the generator does not move."""
    model, batch = _encoder().to(device), _sequences(device)
    theirs = copy.deepcopy(model)
    graph = capture(model, torch.optim.SGD(model.parameters(), lr=1e-2), batch, _loss)
    step = problem_of(graph, estimate(graph))
    ops, program = step.problem.ops, step.problem.program
    runs = [(o, graph.ops[a.ranks[0]]) for o, a in enumerate(step.actions) if len(a.ranks) == 1 and a.act == "run"]
    drawn = [o for o, op in runs if op.is_random and not ops[o].once and not ops[o].reads]
    begin = _backward(graph, step)
    rewritten = _rewritten(graph, step, (*program[:begin], *drawn, *program[begin:]))
    torch.manual_seed(0)
    rewritten(batch, keep_gradients=True)
    here = torch.rand(3, device=device)
    torch.manual_seed(0)
    _loss(theirs, batch).backward()
    _expect_equal({"the generator": here}, {"the generator": torch.rand(3, device=device)}, 0)
    _expect_equal(_gradients(model), _gradients(theirs), 0)
    return f"{len(drawn)} draws made again"


def _backward(graph: StepGraph, step: StepProblem) -> int:
    """Where in the program of `step` backward begins."""
    phases = [graph.ops[step.actions[o].ranks[0]].phase for o in step.problem.program]
    return phases.index(Phase.BACKWARD)


def _rewritten(graph: StepGraph, step: StepProblem, order: tuple[int, ...]) -> StepGraph:
    rewritten = rewrite(graph, step.actions, order)
    verify(graph, rewritten)
    return rewritten


def _gradients(model: nn.Module) -> dict[str, Any]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _swaps(device: torch.device) -> str:
    """Values leave the device and come back whole."""
    values = [torch.randn(3, 2**17 + k).to(device) for k in range(4)]
    with closing(open_space(usual_tier(device), device)) as space:
        space.reserve(_room(value.nbytes for value in values))
        parked = [space.offload(value) for value in values]
        for each in parked:
            space.settle(each)
        back = [space.prefetch(each) for each in parked]
        for value in back:
            space.arrive(value)
        if not all(map(torch.equal, values, back)):
            raise CheckFailed(f"what came back from {space.kind} is not what was sent")
        return f"{sum(value.nbytes for value in values)} bytes to {space.kind} and back"


def _swaps_in_a_step(device: torch.device) -> str:
    """Every activation that can leaves the device in forward, its bytes are free, and backward gets it back whole."""
    model, batch = _convnet().to(device), _images(device)
    theirs, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=1e-2)
    graph = capture(model, optimizer, batch, _loss)
    sample = replace(estimate(graph), transfer=(TransferSample(2**20, 1.0, 1.0),))
    step = problem_of(graph, sample, lanes=Lanes("out", "in", least_bytes=2**16))
    order, sent = _all_sent_away(graph, step)
    rewritten = _rewritten(graph, step, order)
    with closing(open_space(usual_tier(device), device)) as space:
        space.reserve(_room(sent))
        torch.manual_seed(0)
        rewritten(batch, keep_gradients=True, space=space)
        torch.manual_seed(0)
        _loss(theirs, batch).backward()
        _expect_equal(_gradients(model), _gradients(theirs), 0)
        without, with_swaps = (_taken(graph, batch, None), _taken(rewritten, batch, space))
    if with_swaps > without - max(sent):
        raise CheckFailed(f"{sum(sent)} bytes were sent away, but the step takes {with_swaps} bytes, {without} without")
    return f"{len(sent)} values, {sum(sent)} bytes; a step takes {with_swaps} bytes, {without} without"


def _all_sent_away(graph: StepGraph, step: StepProblem) -> tuple[tuple[int, ...], list[int]]:
    """The program in which each activation leaves behind its last use in forward and is back for its first in
    backward; and their bytes."""
    problem, begin = step.problem, _backward(graph, step)
    behind: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    sent = []
    for swap in swaps_of(problem).values():
        used = [
            k for k, o in enumerate(problem.program) if swap.storage in (*problem.ops[o].reads, *problem.ops[o].writes)
        ]
        earlier, later = [k for k in used if k < begin], [k for k in used if k >= begin]
        if earlier and later:
            behind.setdefault(earlier[-1], []).extend((swap.offload, swap.release))
            before.setdefault(later[0], []).append(swap.prefetch)
            sent.append(problem.storages[swap.storage].bytes)
    places = enumerate(problem.program)
    return tuple(x for k, o in places for x in (*before.get(k, ()), o, *behind.get(k, ()))), sent


def _taken(graph: StepGraph, batch: Any, space: SwapSpace | None) -> int:
    meter = meter_for(graph.device)
    tensors = graph.form.tensors(batch)
    assert graph.optimizer is not None
    meter.start()
    graph.run(tensors, Ledger(graph.optimizer, space=space))
    return meter.stop().peak


def _room(sizes: Iterable[int]) -> int:
    return sum(-(-size // _BLOCK) * _BLOCK for size in sizes)


def _checked(device: torch.device) -> str:
    model = _convnet().to(device)
    found = check(model, torch.optim.SGD(model.parameters(), lr=1e-2), _images(device), _loss)
    return str(found)


def _fused(parameters: Any, lr: float) -> Optimizer:
    return torch.optim.Adam(parameters, lr=lr, fused=True)


def _foreach(parameters: Any, lr: float) -> Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, foreach=True)


def _repeats(device: torch.device) -> str:
    """Eager gives the same bits twice: what all other comparisons stand on."""
    for make, batch in ((_convnet, _images(device)), (_encoder, _sequences(device))):
        model = make().to(device)
        copies = [model, copy.deepcopy(model)]
        for number, each in enumerate((*copies, *copies)):
            torch.manual_seed(0)
            each.zero_grad()
            _loss(each, batch).backward()
            if number % 2:
                _expect_equal(_gradients(copies[0]), _gradients(copies[1]), number // 2)
    return "gradients of two models, twice"


CHECKS: dict[str, Callable[[torch.device], str]] = {
    "eager repeats itself": _repeats,
    "allocator's counter": _counts,
    "all gradients as in eager": _checked,
    "convolutions, AdamW": lambda device: _trains(device, _convnet(), _images(device)),
    "convolutions, SGD foreach": lambda device: _trains(device, _convnet(), _images(device), make=_foreach),
    "transformer, Adam fused": lambda device: _trains(device, _encoder(), _sequences(device), make=_fused),
    "bfloat16 autocast": lambda device: _trains(device, _encoder(), _sequences(device), _loss_in_bfloat16),
    "accumulation and clipping": lambda device: _trains(
        device, _convnet(), _images(device), budget="85%", accumulate=2, clip_grad_norm=0.1
    ),
    "random numbers replayed": _replays,
    "swap space": _swaps,
    "a step whose activations leave": _swaps_in_a_step,
    "training that swaps": lambda device: _trains(device, _convnet(), _images(device), swaps=True),
}
"""By name, in the order in which they run."""
