"""What a step offers beside training, on two ranks: other shapes, flush, saved plans, swapping, a mesh."""

from pathlib import Path

import pytest
from torch import distributed

import lowtide
from tests.parallel.test_equal import compared
from tests.parallel.two_ranks import batches, loss, model_of, on_two


def each_offer(rank: int, kind: str, folder: str) -> str:
    """Whatever is not equal, by its name."""
    plan = Path(folder) / "plan.json"
    model, optimizer = model_of(kind)
    step = lowtide.train_step(model, optimizer, batches(rank, 1)[0], loss, "75%")
    if rank == 0:
        step.save_plan(plan)
    distributed.barrier()
    said = {
        "another shape": compared(rank, kind, "75%", rows=(64, 48, 64)),
        "flush": compared(rank, kind, None, 3, 0.5, flush_after=2),
        "a saved plan": compared(rank, kind, plan=plan),
        "swap": compared(rank, kind, "75%", swap="disk", swap_dir=folder),
    }
    return "; ".join(f"{name}: {text}" for name, text in said.items() if not text.startswith("equal"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_offers(kind: str, tmp_path: Path) -> None:
    assert on_two(each_offer, tmp_path, kind, str(tmp_path)) == ["", ""]


def meshed(rank: int) -> str:
    """A plain model with a mesh."""
    return compared(rank, "mesh", None, 2).split(",")[0]


@pytest.mark.slow
def test_a_mesh_is_a_group(tmp_path: Path) -> None:
    assert on_two(meshed, tmp_path) == ["equal", "equal"]
