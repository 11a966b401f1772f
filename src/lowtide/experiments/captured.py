"""A model from the command line as a captured step, for commands that measure plans of it beside eager steps."""

from collections.abc import Callable
from typing import Any

import lowtide
from lowtide.graph.step_graph import StepGraph
from lowtide.models import ModelOptions, build, make_optimizer
from lowtide.tracing.loss import model_loss


def captured(
    model: str, batch_size: int, options: ModelOptions, *, optimizer: str, lr: float, seed: int
) -> tuple[str, StepGraph, Callable[[], Any]]:
    """Its name, its step, and the eager forward pass of the same model on the same batch."""
    training = build(model, batch_size, options, seed=seed)
    made = make_optimizer(optimizer, training.model, lr)
    loss = training.loss or model_loss
    graph = lowtide.capture(training.model, made, training.batch, training.loss)
    return training.name, graph, lambda: loss(training.model, training.batch)
