"""docs/answers.md: each sentence on the page is one that the code prints."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lowtide

PAGE = (Path(__file__).parent.parent / "docs" / "answers.md").read_text(encoding="utf-8")


class Net(nn.Module):
    """What people write, with one thing in its forward."""

    def __init__(self, extra: Callable[["Net", Tensor], Tensor] = lambda net, x: x) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))
        self.head = nn.Linear(32, 5)
        self.calls = 0
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.extra(self, self.layers(x))
        logits: Tensor = self.head(hidden)
        return logits


def count(net: Net, x: Tensor) -> Tensor:
    net.calls += 1
    return x


def look(net: Net, x: Tensor) -> Tensor:
    return x * 2 if x.mean() > 0 else x


def shake(net: Net, x: Tensor) -> Tensor:
    return x * random.random()


def again(net: Net, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(torch.tanh, x, use_reentrant=False)
    return result


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


BATCH = (torch.zeros(64, 32), torch.zeros(64, dtype=torch.long))


def made(net: nn.Module, batch: Any = BATCH, function: Any = loss, **options: Any) -> lowtide.TrainStep:
    return lowtide.train_step(
        net, torch.optim.SGD(net.parameters(), lr=0.1), batch, function, time_limit=1, progress=False, **options
    )


def other_plan(folder: Path) -> None:
    net = Net()
    made(net, budget="100%").save_plan(folder / "plan.json")
    made(net, (torch.zeros(48, 32), torch.zeros(48, dtype=torch.long)), plan=folder / "plan.json")


def lbfgs() -> None:
    net = Net()
    lowtide.train_step(net, torch.optim.LBFGS(net.parameters()), BATCH, loss)


ERRORS: dict[str, Callable[[Path], Any]] = {
    "side-effects": lambda folder: made(Net(count)),
    "values": lambda folder: made(Net(look)),
    "random": lambda folder: made(Net(shake)),
    "criterion": lambda folder: made(Net(), function=nn.CrossEntropyLoss()),
    "no-loss": lambda folder: made(Net(), function=None),
    "scalar": lambda folder: made(Net(), function=lambda model, batch: model(batch[0])),
    "budget": lambda folder: made(Net(), budget="20KB"),
    "checkpoint": lambda folder: made(Net(again)),
    "plan": other_plan,
    "numpy": lambda folder: made(Net(), (np.zeros((4, 32), dtype=np.float32), BATCH[1])),
    "lbfgs": lambda folder: lbfgs(),
}


def printed(name: str, folder: Path) -> str:
    """The sentence, with the reader's places instead of this file's."""
    with pytest.raises(lowtide.LowtideError) as caught:
        ERRORS[name](folder)
    text = re.sub(r"\S*test_answers\.py:\d+", "train.py:12", str(caught.value))
    return text.replace(str(folder / "plan.json"), "plan.json")


def compared(sentence: str) -> str:
    """Without figures that depend on the machine: how many bytes, and what they are."""
    return re.sub(r"[\d.]+ KiB|; the largest in the way.*?(?=\. What)|\(\d+ bytes\)", "#", sentence)


@pytest.mark.parametrize("name", ERRORS)
def test_the_sentence_is_the_one_that_is_printed(name: str, tmp_path: Path) -> None:
    section = re.search(rf'<a id="{name}"></a>\n+> (.*?)\n\n', PAGE, re.DOTALL)
    assert section is not None, printed(name, tmp_path)
    assert compared(section.group(1).replace("\n> ", " ")) == compared(printed(name, tmp_path))


def test_every_answer_has_a_test_and_three_lines_that_mend_it() -> None:
    assert re.findall(r'<a id="([\w-]+)"></a>', PAGE) == list(ERRORS)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == len(ERRORS)
    assert all(len(list(filter(None, block.splitlines()))) <= 3 for block in blocks)
    for block in blocks:
        compile(block, "answers.md", "exec")
