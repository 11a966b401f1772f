"""Collectives that go on beside compute: equal to DDP and FSDP2, within the budget, whatever the clock says."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import distributed

import lowtide
from lowtide.graph.step_graph import StepGraph
from lowtide.parallel.ranks import Ranks
from lowtide.planning.flights import Flight
from lowtide.profiling.beside import Links
from lowtide.profiling.link import with_link_times
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.training import pipeline
from lowtide.training.planned import Planned, apply_plan
from tests.parallel.test_equal import compared
from tests.parallel.two_ranks import batches, loss, model_of, on_two


def worthwhile(profile: Profile, graph: StepGraph, ranks: Ranks) -> tuple[Profile, Links]:
    """As if the link were slow and took nothing from compute: what was measured here decides nothing."""
    found, links = with_link_times(profile, graph, ranks)
    times = {op.name: op.runtime_ms for op in found.ops}
    assert links.keys() <= times.keys()
    assert all(link.drag >= 0 and 0 <= link.start + link.wait <= times[name] for name, link in links.items())
    slow = {name: Flight(0.01, 0.01, 0.0) for name in links}
    ops = tuple(replace(op, runtime_ms=0.5) if op.name in slow else op for op in found.ops)
    return replace(found, ops=ops), slow


def beside(rank: int, kind: str, budget: str, accumulate: int = 1, clip: float | None = None, *more: Any) -> str:
    """What differs, or nothing; how many collectives were started apart, and how many gathers ran again."""
    steps: list[Planned] = []

    def applied(graph: StepGraph, plan: StepPlan) -> Planned:
        steps.append(apply_plan(graph, plan))
        return steps[-1]

    options = dict(more)
    with patch.object(pipeline, "with_link_times", worthwhile), patch.object(pipeline, "apply_plan", applied):
        said = compared(rank, kind, budget, accumulate, clip, **options).split(",")[0]
    started = sum(op.purpose == "start" for step in steps for op in step.graph.ops)
    again = sum(op.purpose == "recompute" and "gather" in op.op for step in steps for op in step.graph.ops)
    return f"{said} {started} {again}"


def several(rank: int, *each: tuple[Any, ...]) -> str:
    """One after the other."""
    return ", ".join(beside(rank, *given) for given in each)


SMALL = ("bucket_cap_mb", 0.004)


TRAININGS = [
    ("plain", "99%", 1, None, SMALL),
    ("fsdp", "80%"),
    ("fsdp", "55%"),
    ("plain", "90%", 3, 0.5, SMALL),
    ("fsdp", "75%", 2, 0.5),
    ("bf16, summed in fp32", "85%", 2, 0.5),
]


def judge(said: list[str]) -> None:
    """All ranks started the same collectives apart, and every training was equal."""
    words = [text.split(" ") for text in said[0].split(", ")]
    assert all(text == said[0] for text in said), said
    assert all(first == "equal" for first, *_ in words), said
    assert all(int(started) > 0 for _, started, _ in words), said


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    judge(on_two(several, tmp_path, *TRAININGS[:2]))


@pytest.mark.slow
def test_accumulation_clipping_and_lower_precision(tmp_path: Path) -> None:
    judge(on_two(several, tmp_path, *TRAININGS[2:]))


@pytest.mark.slow
def test_four_ranks(tmp_path: Path) -> None:
    """HSDP sums over those who hold the same shards when the wait is over."""
    judge(on_two(several, tmp_path, ("fsdp", "80%"), ("hsdp", "85%", 2, 0.5), world=4))


def left(rank: int, what: str) -> str:
    """Rank 1 goes while the others have collectives under way, or raises in a step."""
    model, optimizer = model_of("plain")
    data = batches(rank, 3)
    group = distributed.group.WORLD
    with patch.object(pipeline, "with_link_times", worthwhile):
        step = lowtide.train_step(
            *(model, optimizer, data[0], loss, "99%"), process_group=group, bucket_cap_mb=SMALL[1], measure="before"
        )
    assert any(op.purpose == "start" for op in step.graph.ops)
    step(data[0])
    if rank == 1 and what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        data[1] = (data[1][0], torch.full_like(data[1][1], 99))
    return str(step(data[1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"), [("raises", "rank 1 failed in a step: IndexError"), ("killed", "rank 1 is gone in a step")]
)
def test_the_other_two_end_in_a_sentence(what: str, words: str, tmp_path: Path) -> None:
    said = on_two(left, tmp_path, what, world=3)
    for rank in (0, 2):
        assert said[rank].startswith(f"RankFailed: {words}"), said
        assert len(said[rank].splitlines()) == 1, said
