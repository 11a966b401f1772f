"""What changes between steps, on all ranks or on one: the same training as eager's, or one sentence on every rank."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn import functional as F
from torch.optim import Optimizer

import lowtide
from lowtide.errors import LowtideError
from tests.parallel.test_equal import first_difference
from tests.parallel.two_ranks import batches, model_of, on_two

pytestmark = pytest.mark.slow

STEPS, AT = 4, 2
Both = Sequence[tuple[nn.Module, Optimizer]]
Change = Callable[[SimpleNamespace, Both, bool], None]
"""Given the values that the loss reads, the two trainings, and whether to undo it."""


def trained(rank: int, kind: str, change: Change, *, only: int | None = None, undo: bool = False) -> str:
    """How many steps are equal to eager's where `change` comes before one, on rank `only` or on all, and what that step
    says; where it says something, the next goes on without the change."""
    values = SimpleNamespace(scale=1.0, power=0, fails=False)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if values.fails:
            raise ValueError("nothing to learn here")
        found = F.cross_entropy(model(batch[0]), batch[1]) * values.scale
        if (batch[1] > 2).all():
            found = found * 2
        return torch.pow(found, values.power) if values.power else found

    theirs, ours = model_of("ddp" if kind == "plain" else kind), model_of(kind)
    group = distributed.group.WORLD if kind == "plain" else None
    data = [(x, y.clamp(3)) for x, y in batches(rank, STEPS)]
    step = lowtide.train_step(*ours, data[0], loss, progress=False, process_group=group)
    said = ""
    for number, (x, y) in enumerate(data):
        if number in (AT, AT + 1) and rank in (rank if only is None else only,) and (number == AT or said or undo):
            change(values, (ours, theirs), number > AT)
        batch = (x, y * 0 if change is other_labels and number == AT and rank == only else y)
        torch.manual_seed(number)
        try:
            mine = step(batch)
        except LowtideError as error:
            said = str(error)
            continue
        torch.manual_seed(number)
        eager = loss(theirs[0], batch)
        eager.backward()
        theirs[1].step()
        theirs[1].zero_grad()
        different = "" if torch.equal(mine, eager.detach()) else "the loss"
        different = different or first_difference(*ours, *theirs)
        apart = torch.tensor(float(bool(different)))
        distributed.all_reduce(apart)
        if apart > 0:
            return f"{different or 'the other rank'} at step {number}"
    return said or "equal"


def value(name: str, new: Any, old: Any) -> Change:
    """One that the loss reads."""
    return lambda values, both, undo: setattr(values, name, old if undo else new)


def other_labels(values: SimpleNamespace, both: Both, undo: bool) -> None:
    """In the batch: a condition comes out otherwise."""


def dropout(values: SimpleNamespace, both: Both, undo: bool) -> None:
    for model, _ in both:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.1 if undo else 0.3


def evaluated(values: SimpleNamespace, both: Both, undo: bool) -> None:
    for model, _ in both:
        model.train(undo)


def rate(values: SimpleNamespace, both: Both, undo: bool) -> None:
    for _, optimizer in both:
        optimizer.param_groups[0]["lr"] = 5e-3


def frozen(values: SimpleNamespace, both: Both, undo: bool) -> None:
    for model, _ in both:
        next(model.parameters()).requires_grad_(undo)


class Saved:
    """Written by torch.distributed.checkpoint before a step, and read before the next one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, values: SimpleNamespace, both: Both, undo: bool) -> None:
        for number, (model, optimizer) in enumerate(both):
            where = f"{self._folder}/{number}"
            names = ("model", "optimizer")
            state: dict[str, Any] = dict(zip(names, get_state_dict(model, optimizer), strict=True))
            if not undo:
                save(state, checkpoint_id=where)
                continue
            load(state, checkpoint_id=where)
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


ONE = {
    "SCALE": (value("scale", 3.0, 1.0), "'values' around"),
    "POWER": (value("power", 2, 0), "'values' around"),
    "FAILS": (value("fails", True, False), "'values' around"),
    "LABELS": (other_labels, "what the step sees in the batch"),
    "DROPOUT": (dropout, "has changed"),
    "EVAL": (evaluated, "has changed"),
    "FROZEN": (frozen, "has changed"),
}


def on_one_rank(rank: int, kind: str) -> str:
    """What is said of each."""
    return "\n".join(trained(rank, kind, change, only=1) for change, _ in ONE.values())


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_a_change_on_one_rank_is_one_sentence_on_all(kind: str, tmp_path: Path) -> None:
    said = on_two(on_one_rank, tmp_path, kind)
    assert said[0] == said[1]
    for line, (name, (_, words)) in zip(said[0].splitlines(), ONE.items(), strict=True):
        assert line.startswith("rank 1 has another batch or setting than rank 0: a new capture, as "), (name, line)
        assert words in line, (name, line)


def on_all_ranks(rank: int, kind: str, folder: str) -> str:
    """Whatever is not equal; DDP itself does not know of parameters that are frozen later."""
    changes: dict[str, Change] = {
        "scale": value("scale", 3.0, 1.0),
        "dropout": dropout,
        "eval": evaluated,
        "rate": rate,
    }
    changes |= {"checkpoint": Saved(folder)} | ({"frozen": frozen} if kind == "fsdp" else {})
    said = {name: trained(rank, kind, change, undo=name != "rate") for name, change in changes.items()}
    return "; ".join(f"{name}: {text}" for name, text in said.items() if text != "equal")


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_a_change_on_all_ranks_is_equal(kind: str, tmp_path: Path) -> None:
    assert on_two(on_all_ranks, tmp_path, kind, str(tmp_path)) == ["", ""]
