"""The ranks of one group as processes on this machine, started here: told what to do, heard, and never left behind."""

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import distributed

from lowtide.errors import InputError, LowtideError, RankFailed
from lowtide.files import owned_prefix
from lowtide.parallel.ranks import PATIENCE, budget_fields, in_distributed, infeasible

Talk = Connection
"""What a rank hears with `recv` and answers with `send`."""
Failure = tuple[str, str, Any]
"""Kind of error, what it says, and of a budget that cannot be met the figures."""


class Launched:
    """`world` processes on CPUs, joined by gloo, each with its share of the cores; each runs `work(rank, talk, *given)`
    from a module that can be imported. Leaving the block ends them."""

    def __init__(self, world: int, work: Callable[..., None], *given: Any) -> None:
        self._world, self._work, self._given = world, work, given
        self._processes: list[BaseProcess] = []
        self._talks: list[Talk] = []

    def __enter__(self) -> "Launched":
        prefix = owned_prefix(Path(tempfile.gettempdir()), "lowtide-ranks-")
        self._folder = tempfile.TemporaryDirectory(prefix=prefix)
        context = get_context("spawn")
        store = str(Path(self._folder.name) / "store")
        for rank in range(self._world):
            here, there = context.Pipe()
            process = context.Process(
                target=_run, args=(self._work, rank, self._world, store, there, self._given), daemon=True
            )
            process.start()
            there.close()  # theirs alone: when they are gone, we hear it
            self._processes.append(process)
            self._talks.append(here)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """All are gone, whatever happened: who waits for a word hears that there will be none."""
        for talk in self._talks:
            talk.close()
        for process in self._processes:
            process.join(PATIENCE if error is None else 0)
            process.kill()
            process.join()
        self._folder.cleanup()

    def tell(self, word: Any) -> None:
        """All of them; who is gone says so in `answers`."""
        for talk in self._talks:
            try:
                talk.send(word)
            except BrokenPipeError:
                continue

    def answers(self) -> list[Any]:
        """The next answer of each rank. Where one fails or is gone, the error that is the cause, named by its rank."""
        found: dict[int, Any] = {}
        failed: dict[int, Failure | None] = {}
        end: float | None = None
        while len(found) + len(failed) < self._world:
            waiting = {self._talks[r]: r for r in range(self._world) if r not in found and r not in failed}
            ready = connection.wait(list(waiting), None if end is None else max(0.0, end - time.monotonic()))
            for talk in ready:
                rank = waiting[talk]  # type: ignore[index]
                try:
                    good, said = self._talks[rank].recv()
                except (EOFError, ConnectionResetError):
                    failed[rank] = None
                    continue
                (found if good else failed)[rank] = said
            if failed and end is None:  # the others hear of it through the group, or never
                end = time.monotonic() + PATIENCE
            if not ready and end is not None:
                break
        if failed:
            self._raise_cause(failed)
        return [found[rank] for rank in range(self._world)]

    def _raise_cause(self, failed: dict[int, Failure | None]) -> None:
        """Who only says that another one is gone is not the cause."""
        said = sorted((rank, what) for rank, what in failed.items() if what is not None)
        causes = [(rank, what) for rank, what in said if what[0] != RankFailed.__name__]
        gone = [rank for rank, what in failed.items() if what is None]
        if causes:
            rank, (_, text, fields) = causes[0]
            raise infeasible(text, fields) if fields is not None else InputError(f"rank {rank}: {text}")
        if gone:
            process = self._processes[gone[0]]
            process.join()
            killed = process.exitcode == -signal.SIGKILL
            why = (
                "was killed, as the system does where memory runs out: give a smaller budget, or try a smaller batch"
                if killed
                else f"ended with exit code {process.exitcode} and told no reason: see what it wrote above"
            )
            raise RankFailed(f"rank {gone[0]} {why}")
        raise RankFailed(said[0][1][1])


def _run(work: Callable[..., None], rank: int, world: int, store: str, talk: Talk, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its processes
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        work(rank, talk, *given)
    except EOFError:  # of `talk`: the parent has heard enough
        return
    except LowtideError as error:
        kind: type[Exception] = RankFailed if isinstance(error, RankFailed) else type(error)
        talk.send((False, (kind.__name__, str(error), budget_fields(error))))
    except Exception as error:  # noqa: BLE001 - the parent raises it, and the user sees where it came from
        lost = in_distributed(error)
        if not lost:
            sys.stderr.write(traceback.format_exc())
        kind = RankFailed if lost else type(error)
        talk.send((False, (kind.__name__, f"{type(error).__name__}: {error}", None)))
    finally:
        distributed.destroy_process_group()
