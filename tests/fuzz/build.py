"""From a program to what runs: model, optimizer, loss and batches."""

import random
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tests.equality import LossFunction, Trained
from tests.fuzz.changes import CHANGES, Side, turn_knob
from tests.fuzz.kinds import KINDS, Adapt, Pick, Shape
from tests.fuzz.knobs import KNOBS, Knob
from tests.fuzz.losses import LOSSES, make_head
from tests.fuzz.optimizers import build_optimizer
from tests.fuzz.program import INPUTS, Program
from tests.fuzz.sequence_layers import WORDS

LARGEST = 500
"""Elements of one sample; what is larger is cut."""
_SHAPES: dict[int, Shape] = {2: (10,), 3: (5, 8), 4: (4, 6, 6), 5: (2, 4, 4, 4)}
Batch = dict[str, Tensor]


class InvalidProgram(Exception):
    """Eager torch itself cannot run this: another one is drawn."""


class Model(nn.Module):
    """Layers one after the other, perhaps a knob, and the head of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList()
        self.knob: Knob | None = None
        self.head: nn.Module = nn.Identity()

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The output of the head."""
        x = batch["input"]
        for step in self.steps:
            x = step(x, batch["mask"]) if hasattr(step, "takes_batch") else step(x)
        if self.knob is not None:
            x = self.knob(x)
        return self.head(x)  # type: ignore[no-any-return]


def build(program: Program) -> Side:
    """A fresh training, the same at every call."""
    torch.manual_seed(program.seed)
    random.seed(program.seed)
    model, lines = Model(), []

    first = make_batch(program, 0)
    x, mask = first["input"].clone().to(torch.float32 if program.input != "tokens" else torch.long), first["mask"]

    def add(text: str, step: nn.Module) -> None:
        nonlocal x
        model.steps.append(step)
        with torch.no_grad():
            x = step(x, mask) if hasattr(step, "takes_batch") else step(x)
        lines.append(f"{text} -> {tuple(x.shape)}")
        if x.dim() < 2 or x.shape[0] != program.batch or not 0 < x[0].numel() <= 20 * LARGEST:
            raise InvalidProgram(f"{text} makes {tuple(x.shape)}")

    lines.append(f"{program.input} {tuple(x.shape)}")
    if program.input == "tokens":
        add("tokens", nn.Embedding(WORDS, 6))
    for piece in program.layers:
        kind, pick = KINDS[piece.kind], Pick(piece.seed)
        if x.dim() not in kind.ranks:
            add("adapt", Adapt(_SHAPES[kind.ranks[piece.seed % len(kind.ranks)]]))
        elif x[0].numel() > LARGEST:
            add("adapt", Adapt(_SHAPES[x.dim()]))
        step = kind.build(tuple(x.shape), pick)
        add(f"{piece.kind}({_said(pick)})", step)
    pick = Pick(program.loss.seed)
    _, compare = LOSSES[program.loss.kind](pick)
    model.head = make_head(tuple(x.shape), pick)
    lines.append(f"loss {program.loss.kind}({_said(pick)})")
    knob, place = _knob(program)
    if place == "model":
        model.knob = knob
    _set_form(model, program)
    pick = Pick(program.optimizer.seed)
    if not any(p.requires_grad for p in model.parameters()):
        raise InvalidProgram("there is nothing to train")
    optimizer = build_optimizer(program.optimizer.kind, model, pick)
    lines.append(f"optimizer {program.optimizer.kind}({_said(pick)})")
    function = _loss_function(program, compare, knob if place == "loss" else None)
    return Side(Trained(model, optimizer, loss=()), function, knob, tuple(lines))


def _said(pick: Pick) -> str:
    def text(value: object) -> str:
        return value.__name__ if isinstance(value, type) else repr(value)

    return ", ".join(f"{name}={text(value)}" for name, value in pick.said.items())


def _knob(program: Program) -> tuple[Knob | None, str]:
    if program.change is None or CHANGES[program.change.kind] is not turn_knob:
        return None, ""
    name, _, place = program.change.kind.rpartition("_in_")
    return KNOBS[name](), place


def _set_form(model: Model, program: Program) -> None:
    if program.frozen:
        for parameter in list(model.parameters())[::3]:
            parameter.requires_grad_(False)
    if program.dtype in ("float64", "bfloat16"):
        model.to(getattr(torch, program.dtype))
    if program.layout == "channels_last" and program.input == "image":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _loss_function(program: Program, compare: Any, knob: Knob | None) -> LossFunction:
    autocast, everything = program.dtype in ("autocast", "autocast_all"), program.dtype == "autocast_all"
    extra = program.extra

    def loss(model: nn.Module, batch: Batch) -> Any:
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            out = model(batch)
            if knob is not None:
                out = knob(out)
            if "other" in batch:
                out = out * batch["other"].float().flatten(1).mean(1, keepdim=True).to(out.dtype)
            value = compare(out, batch["target"]) if everything or not autocast else None
        if value is None:
            value = compare(out.float() if autocast else out, batch["target"])
        return (value, out.detach()) if extra else value

    return loss


def make_batch(program: Program, call: int, changed: bool = False) -> Batch:
    """The batch of one call, with new tensors each time; `changed` where the program's change is on."""
    kind = program.change.kind if program.change is not None else ""
    generator = torch.Generator().manual_seed(1000 * program.seed + call)
    n = program.batch - (1 if changed and kind == "batch_size" else 0)
    size = INPUTS[program.input]
    if changed and kind == "length" and program.input in ("sequence", "tokens"):
        size = (size[0] + 1, *size[1:])
    if program.input == "tokens":
        given = torch.randint(0, WORDS, (n, *size), generator=generator)
    else:
        given = torch.randn(n, *size, generator=generator)
        if program.dtype in ("float64", "bfloat16"):
            given = given.to(getattr(torch, program.dtype))
    given = _laid_out(given, "transposed" if changed and kind == "strides" else program.layout)
    mask = torch.ones(n, size[0], dtype=torch.bool)
    if changed and kind == "padded":
        mask[0, -2:] = False
    target = LOSSES[program.loss.kind](Pick(program.loss.seed))[0](generator, n)
    batch = {"input": given, "target": target, "mask": mask}
    if "aliased" in kind:
        shares = changed == (kind == "aliased")
        batch["other"] = given if shares else torch.randn(n, *size, generator=generator).to(given.dtype)
        if not shares:
            batch["other"] = _laid_out(batch["other"], program.layout)
    if changed and kind == "leaf":
        batch["unused"] = torch.ones(2)
    return batch


def _laid_out(x: Tensor, layout: str) -> Tensor:
    if layout == "channels_last":
        if x.dim() in (4, 5):
            return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        return x
    if layout == "transposed":
        return x.transpose(1, -1).contiguous().transpose(1, -1)
    if layout == "sliced":
        return torch.stack([x, x], -1)[..., 0]
    if layout == "offset":
        return torch.cat([x[:1], x])[1:]
    return x[:1].expand(x.shape) if layout == "expanded" else x


def listing(program: Program) -> str:
    """The program for a reader, a line per step."""
    how = {
        name: getattr(program, name)
        for name in ("batch", "dtype", "layout", "accumulate", "clip", "budget", "policy", "frozen", "extra")
        if getattr(program, name) != getattr(Program, name)
    }
    lines = [*build(program).lines, f"trained with {how}"]
    if program.change is not None:
        lines.append(f"change {program.change.kind}, seed {program.change.seed}")
    return "\n".join(lines)
