"""Every published run of `runs.json`, predicted."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import torch

from lowtide.errors import InputError, shown
from lowtide.experiments.public.record import PublicRuns, Run, Said
from lowtide.fitting.caching import reserved
from lowtide.fitting.devices import find_device
from lowtide.fitting.dtypes import in_dtype
from lowtide.fitting.fit import Setting
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.models import ModelOptions, Training, build, make_optimizer
from lowtide.models.configurations import of_configuration
from lowtide.planning.simulate import simulate


def public_runs() -> tuple[dict[str, dict[str, Any]], tuple[Run, ...]]:
    """Configurations of models by name, and the runs."""
    text = resources.files("lowtide.experiments.public").joinpath("runs.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return data["models"], tuple(Run(**run) for run in data["runs"])


def predict(names: Sequence[str], *, say: Callable[[str], None]) -> PublicRuns:
    """What is said of the runs of these names, of all without names."""
    models, runs = public_runs()
    unknown = sorted(set(names) - {run.name for run in runs})
    if unknown:
        known = ", ".join(run.name for run in runs)
        raise InputError(f"no published run is called {shown(unknown[0])}: write some of {known}")
    said = []
    captured: dict[Run, Sketch] = {}
    for run in runs:
        if not names or run.name in names:
            say(run.name)
            step = replace(run, name="", world=1, parallel="", checkpoint="", compiled="", accumulate=0, GiB=None)
            step = replace(step, context_MiB=0, per_second=None, held_back=False, note="", source="", device="")
            if step not in captured:
                captured = {step: _sketch(run, models)}  # the last one alone: they are large
            said.append(_said(run, captured[step]))
    return PublicRuns(tuple(said))


def _sketch(run: Run, models: dict[str, dict[str, Any]]) -> Sketch:
    with torch.device("meta"):
        training = _training(run, models)
    training = in_dtype(training, run.dtype)
    return sketch(
        training.model,
        lambda model: make_optimizer("adamw", model, 1e-3),
        training.batch,
        training.loss,
        find_device(run.device).rates,
        gpu=True,
        tensor=run.tensor,
        sequence=run.sequence,
    )


def _training(run: Run, models: dict[str, dict[str, Any]]) -> Training:
    options = ModelOptions(seq_len=run.length)
    if run.model not in models:
        return build(run.model, run.batch, options)
    facts = dict(models[run.model])
    if "n_positions" in facts:  # as many as there are tokens
        facts["n_positions"] = run.length
    return of_configuration(run.model, facts, run.batch, options)


def _said(run: Run, drawn: Sketch) -> Said:
    device = find_device(run.device)
    setting = Setting(
        run.world,
        run.parallel,
        run.checkpoint,
        run.tensor,
        run.compiled,
        run.sequence,
        run.accumulate,
    )
    rank, order = setting.of(drawn.on(device.rates), device)
    timeline = simulate(rank.problem, order)
    units = run.batch * (run.length if run.unit == "tokens" else 1) / run.tensor
    return Said(run, timeline.peak, reserved(rank, order), 1000 * units / timeline.time)
