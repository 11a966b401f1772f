"""One kind of step in this process, told over stdin when: `python -m lowtide.experiments.compiled.child`."""

import os
import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import nn

from lowtide.compiling.backend import backend
from lowtide.device.live import live_bytes
from lowtide.errors import InputError
from lowtide.experiments.compiled.record import KindSettings, StepFigures
from lowtide.experiments.eager_training import EagerTraining, held_bytes
from lowtide.models import ModelOptions, build, make_optimizer
from lowtide.models.training import Training
from lowtide.planning.policies import BudgetInfeasible
from lowtide.tracing.loss import model_loss

PEERS = {"eager": "aot_eager", "inductor": "inductor"}
"""torch's own backend for each of lowtide's executors."""
LEAST = 1e-30
"""What is not equal is off by that at least."""


class Kind:
    """A model and its steps."""

    def __init__(self, wanted: KindSettings) -> None:
        self._wanted = wanted
        self._training = self._built()
        self._optimizer = make_optimizer(wanted.optimizer, self._training.model, wanted.lr)
        self._called = _compiled(self._training.model, wanted)
        self._steps = EagerTraining(self._called, self._optimizer, self._training.loss)

    def step(self) -> dict[str, Any]:
        """One, measured."""
        beside = self._live() - held_bytes(self._training.model, self._optimizer, self._training.batch)
        loss, ms, peak = self._steps.step(self._training.batch)
        if peak is None:
            raise InputError("bench compile needs the allocator shim, which needs a C++ compiler")
        return asdict(StepFigures(ms, peak + beside, float(loss)))

    def resident(self) -> dict[str, Any]:
        """Bytes between two steps."""
        return {"resident_B": self._live()}

    def _live(self) -> int:
        """All tensors, as lowtide's budget counts them."""
        return live_bytes(next(self._training.model.parameters()).device)

    def check(self, path: Path) -> dict[str, Any]:
        """From the first parameters, with the plan that runs now: write the gradients to a file that is not there, or
        compare them with those in it."""
        model, batch = self._training.model, self._training.batch
        model.load_state_dict(self._built().model.state_dict())
        self._optimizer.zero_grad()
        torch.manual_seed(self._wanted.seed)
        result = (self._training.loss or model_loss)(self._called, batch)
        (result[0] if isinstance(result, tuple) else result).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        self._optimizer.zero_grad()
        sizes = [g.numel() for g in gradients]
        is_there = path.exists()
        stored = torch.from_file(str(path), shared=True, size=sum(sizes), dtype=torch.float32)
        pairs = [(g.flatten(), other) for g, other in zip(gradients, stored.split(sizes), strict=True)]
        if not is_there:
            for gradient, other in pairs:
                other.copy_(gradient)
        if all(torch.equal(gradient, other) for gradient, other in pairs):
            return {"off": 0.0}
        apart, whole = (
            sum(float(x.norm()) ** 2 for x in xs) for xs in ((g - o for g, o in pairs), (o for _, o in pairs))
        )
        return {"off": max((apart / whole) ** 0.5, LEAST)}

    def _built(self) -> Training:
        wanted = self._wanted
        options = ModelOptions(wanted.image_size, wanted.seq_len, wanted.dropout)
        return build(wanted.model, wanted.batch_size, options, seed=wanted.seed)


def _compiled(model: nn.Module, wanted: KindSettings) -> nn.Module:
    if wanted.share is None and wanted.budget is None:
        return model
    compiled: Any
    if wanted.share is not None:
        functorch_config.activation_memory_budget = wanted.share
        compiled = torch.compile(model, backend=PEERS[wanted.executor], dynamic=False)
    else:
        options: dict[str, Any] = {
            "budget": wanted.budget,
            "executor": wanted.executor,
            "time_limit": wanted.time_limit,
        }
        compiled = torch.compile(model, backend=backend, options=options, dynamic=False)
    module: nn.Module = compiled
    return module


def main() -> None:
    """Answers a line of JSON to `step`, `resident` and `check FILE`."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model prints
    kind = Kind(KindSettings.load(Path(sys.argv[1])))
    for line in sys.stdin:
        word, _, path = line.strip().partition(" ")
        try:
            found = kind.check(Path(path)) if path else kind.step() if word == "step" else kind.resident()
        except (BudgetInfeasible, InputError) as error:  # the backend plans at its first steps
            found = {"failure": str(error)}
        answers.write(dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
