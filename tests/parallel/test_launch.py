"""Ranks that are started here: heard one by one, and the cause of a failure is named."""

import os
import signal
from typing import Any

import pytest
from torch import distributed

from lowtide.errors import InputError, LowtideError, RankFailed
from lowtide.parallel.launch import Launched, Talk


def work(rank: int, talk: Talk, what: str) -> None:
    """Answers once, then does as it is told; the other one waits for it in a collective."""
    talk.send((True, 10 * rank))
    word = talk.recv()
    if rank == 1 and what == "raises":
        raise InputError(f"{word} is wrong")
    if rank == 1 and what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    told: list[Any] = [None, None]
    distributed.all_gather_object(told, word)
    talk.send((True, told))


def test_all_answer_in_order() -> None:
    with Launched(2, work, "") as ranks:
        assert ranks.answers() == [0, 10]
        ranks.tell("go")
        assert ranks.answers() == [["go", "go"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "kind", "said"),
    [("raises", InputError, "rank 1: go is wrong"), ("killed", RankFailed, "rank 1 was killed, as the system does")],
)
def test_the_cause_is_named(what: str, kind: type[LowtideError], said: str) -> None:
    with Launched(2, work, what) as ranks:
        ranks.answers()
        ranks.tell("go")
        with pytest.raises(kind, match=said):
            ranks.answers()
