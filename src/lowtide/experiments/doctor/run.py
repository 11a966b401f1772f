"""The checks of `lowtide doctor`: each trains or copies something small and compares it, bit for bit."""

import copy
import platform
import traceback
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lowtide.device.clock import total_memory
from lowtide.device.meter import meter_for
from lowtide.device.shim import compiler
from lowtide.device.swap import open_space, usual_tier
from lowtide.errors import InputError, LowtideError, shortened
from lowtide.experiments.doctor.record import Diagnosis, Finding
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import problem_of
from lowtide.records.vocabulary import Phase, Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from lowtide.tracing.capture import capture
from lowtide.training.check import check
from lowtide.training.train_step import train_step
from lowtide.units import format_bytes

TOLERANCE = 0.01
"""Of a predicted peak."""
_FRAMES = 6
"""Of the traceback of a check that fails."""


class CheckFailed(LowtideError, RuntimeError):
    """Something is not as it must be here."""


def device_called(name: str | None) -> torch.device:
    """The device to look at: `name`, or a GPU where torch sees one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu" or (name.startswith("cuda") and torch.cuda.is_available()):
        return torch.device(name)
    raise InputError(
        f"there is no device {name!r} here: torch sees {'cpu, cuda' if torch.cuda.is_available() else 'cpu'}"
    )


def examine(device: torch.device, say: Callable[[str], None]) -> Diagnosis:
    """Run every check on `device`; one that fails does not keep the others from running."""
    found = []
    for name, run in CHECKS.items():
        say(name)
        began = perf_counter()
        try:
            passed, said = True, run(device)
        except Exception as error:  # noqa: BLE001 - what fails is the result
            frames = "".join(traceback.format_tb(error.__traceback__)[-_FRAMES:])
            passed, said = False, f"{type(error).__name__}: {shortened(str(error), 600)}\n{frames}".rstrip()
        found.append(Finding(name, passed, said, perf_counter() - began))
    return Diagnosis(str(device), facts(device), tuple(found))


def facts(device: torch.device) -> tuple[tuple[str, str], ...]:
    """What is here."""
    known = [
        ("lowtide", version("lowtide")),
        ("torch", str(torch.__version__)),
        ("Python", f"{platform.python_version()} on {platform.system()}"),
        ("C++ compiler", compiler() or "none: torch.profiler counts bytes on the CPU, slower, blind to other threads"),
        ("bytes are counted by", meter_for(device).name),
        ("threads", str(torch.get_num_threads())),
        ("memory of the device", format_bytes(total_memory(device))),
    ]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        known += [
            ("GPU", f"{torch.cuda.get_device_name(device)}, compute capability {major}.{minor}"),
            ("CUDA, cuDNN", f"{torch.version.cuda}, {torch.backends.cudnn.version()}"),
            ("allocator", torch.cuda.get_allocator_backend()),
            ("deterministic algorithms", str(torch.are_deterministic_algorithms_enabled())),
        ]
    return tuple(known)


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


def _convnet() -> nn.Module:
    blocks = (
        (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout(0.1)) for _ in range(6)
    )
    layers = [layer for block in blocks for layer in block]
    return nn.Sequential(nn.Conv2d(3, 16, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Flatten(), nn.Linear(512, 5))


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
    **options: Any,
) -> str:
    """Three steps beside eager ones of a copy: all equal, the peak inside the budget and as predicted."""
    model = model.to(device)
    theirs = copy.deepcopy(model)
    ours, eager = make(model.parameters(), lr=1e-2), make(theirs.parameters(), lr=1e-2)
    every = options.get("accumulate", 1)
    with train_step(model, ours, batch, loss, budget, time_limit=5, progress=False, **options) as step:
        assert step.plan is not None
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
            peak = step.measured_peak
            if peak is not None and peak > step.plan.budget:
                raise CheckFailed(f"step {number + 1} took {peak} bytes, the budget is {step.plan.budget}")
        predicted, allowed = step.predicted_peak, step.plan.budget
        if peak is not None and predicted is not None and every == 1 and abs(peak / predicted - 1) > TOLERANCE:
            raise CheckFailed(
                f"a step took {peak} bytes, predicted were {predicted}: {100 * (peak / predicted - 1):+.1f} %"
            )
        again = sum(op.purpose is not Purpose.PROGRAM for op in step.graph.ops)
    return f"3 steps equal; {peak} bytes of {allowed}, predicted {predicted}; {again} ops added by the plan"


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
    model = _encoder().to(device)
    batch, optimizer = _sequences(device), torch.optim.SGD(model.parameters(), lr=1e-2)
    theirs = copy.deepcopy(model)
    graph = capture(model, optimizer, batch, _loss)
    step = problem_of(graph, estimate(graph))
    ops = [(o, graph.ops[a.ranks[0]]) for o, a in enumerate(step.actions) if len(a.ranks) == 1 and a.act == "run"]
    drawn = [o for o, op in ops if op.is_random and not step.problem.ops[o].once and not step.problem.ops[o].reads]
    backward = next(
        k for k, o in enumerate(step.problem.program) if any(o == p and op.phase is Phase.BACKWARD for p, op in ops)
    )
    order = (*step.problem.program[:backward], *drawn, *step.problem.program[backward:])
    rewritten = rewrite(graph, step.actions, order)
    verify(graph, rewritten)
    torch.manual_seed(0)
    rewritten(batch, keep_gradients=True)
    here = torch.rand(3, device=device)
    torch.manual_seed(0)
    _loss(theirs, batch).backward()
    _expect_equal({"the generator": here}, {"the generator": torch.rand(3, device=device)}, 0)
    gradients = [{n: p.grad for n, p in m.named_parameters()} for m in (model, theirs)]
    _expect_equal(gradients[0], gradients[1], 0)
    return f"{len(drawn)} draws made again"


def _swaps(device: torch.device) -> str:
    """Values leave the device and come back whole."""
    values = [torch.randn(3, 2**17 + k).to(device) for k in range(4)]
    with closing(open_space(usual_tier(device), device)) as space:
        space.reserve(sum(-(-value.nbytes // 4096) * 4096 for value in values))
        parked = [space.offload(value) for value in values]
        for each in parked:
            space.settle(each)
        back = [space.prefetch(each) for each in parked]
        for value in back:
            space.arrive(value)
        if not all(map(torch.equal, values, back)):
            raise CheckFailed(f"what came back from {space.kind} is not what was sent")
        return f"{sum(value.nbytes for value in values)} bytes to {space.kind} and back"


def _checked(device: torch.device) -> str:
    model = _convnet().to(device)
    found = check(model, torch.optim.SGD(model.parameters(), lr=1e-2), _images(device), _loss)
    return str(found)


def _fused(parameters: Any, lr: float) -> Optimizer:
    return torch.optim.Adam(parameters, lr=lr, fused=True)


def _foreach(parameters: Any, lr: float) -> Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, foreach=True)


CHECKS: dict[str, Callable[[torch.device], str]] = {
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
    "training that may swap": lambda device: _trains(device, _convnet(), _images(device), swap="auto"),
}
"""By name, in the order in which they run."""
