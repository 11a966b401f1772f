"""The processes that train together: what one of them says reaches all, and who fails is named by the others."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from lowtide.errors import InputError, LowtideError, PeerLost, RankFailed, shortened
from lowtide.parallel.alive import ASKED, answer
from lowtide.planning.policies import BudgetInfeasible

T = TypeVar("T")
PATIENCE = 5.0
"""Seconds to wait for a word of those who may be gone."""
_DISTRIBUTED = str(distributed.__file__).removesuffix("__init__.py")


class Ranks:
    """All ranks of a group; without one this process is the only one, and every call is a plain one."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self.group = group
        self._device = device
        self._noted = False
        self.rank = 0 if group is None else distributed.get_rank(group)
        self.world = 1 if group is None else distributed.get_world_size(group)

    @property
    def alone(self) -> bool:
        """Is there nobody else?"""
        return self.world == 1

    def said_by_all(self, text: str) -> list[str]:
        """What every rank says here, in order."""
        if self.alone:
            return [text]
        told: list[Any] = [None] * self.world
        distributed.all_gather_object(told, text, group=self.group)
        return told

    def together(self, what: str, make: Callable[[], T]) -> T:
        """What `make` gives on this rank; where it fails on one of them, all end. There is no collective in it."""
        if self.alone:
            return make()
        failed: Exception | None = None
        made: T
        try:
            made = make()
        except Exception as error:  # noqa: BLE001 - raised again when all know
            failed = error
        told = self.said_by_all("" if failed is None else str(failed) or type(failed).__name__)
        if failed is not None:
            raise failed
        self._raise_what(what, told)
        return made

    def _raise_what(self, what: str, told: Sequence[str]) -> None:
        for rank, text in enumerate(told):
            if text:
                raise RankFailed(f"rank {rank} failed in {what}: {shortened(text, 600)}")

    def decided(self, what: str, make: Callable[[], str]) -> str:
        """What the first rank makes, on all of them; where it fails, it fails in the same way on all."""
        if self.alone:
            return make()
        failed: Exception | None = None
        told: list[Any] = [None]
        if self.rank == 0:
            try:
                told = [json.dumps({"made": make()})]
            except Exception as error:  # noqa: BLE001 - raised again when all know
                failed = error
                told = [json.dumps({"error": str(error), "budget": budget_fields(error)})]
        distributed.broadcast_object_list(told, group=self.group, group_src=0)
        if failed is not None:
            raise failed
        answer = json.loads(told[0])
        if "made" in answer:
            return str(answer["made"])
        if answer["budget"] is not None:
            raise infeasible(answer["error"], answer["budget"])
        raise RankFailed(f"rank 0 failed in {what}: {shortened(answer['error'], 600)}")

    def same(self, what: str, lines: Sequence[str], advice: str, said: Sequence[str] | None = None) -> None:
        """Are these lines those of the first rank? If not, all raise, and name the first that differs, or what
        is `said` in its place."""
        if self.alone:
            return
        digests = self._gathered([_number("\n".join(lines))])
        if all(digest == digests[0] for digest in digests):
            return
        told = [json.loads(text) for text in self.said_by_all(json.dumps(list(said or lines)))]
        other = next(rank for rank in range(self.world) if told[rank] != told[0])
        theirs, first = told[other], told[0]
        place = next(
            (k for k, (a, b) in enumerate(zip(theirs, first, strict=False)) if a != b), min(len(theirs), len(first))
        )
        there, here = (shortened(rows[place], 200) if place < len(rows) else "nothing" for rows in (theirs, first))
        raise InputError(f"rank {other} has another {what} than rank 0: {there} instead of {here}; {advice}")

    def any(self, flag: bool) -> bool:
        """Does any rank say so?"""
        return flag if self.alone else any(self._gathered([int(flag)]))

    def largest(self, numbers: Sequence[float]) -> list[float]:
        """Place by place the largest of all ranks."""
        if self.alone:
            return list(numbers)
        given = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        distributed.all_reduce(given, distributed.ReduceOp.MAX, group=self.group)
        return given.tolist()

    def _gathered(self, numbers: list[int]) -> list[int]:
        given = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        out = torch.empty(self.world * len(numbers), dtype=torch.int64, device=self._device)
        distributed.all_gather_single(out, given, group=self.group)
        return out.tolist()

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Around what has collectives in it: a failure of this rank is left where the others find it, and where a
        collective fails the rank that is the cause is named."""
        if self.alone:
            yield
            return
        answer(distributed_c10d._get_default_store(), self._name(self.rank))
        if self._noted:  # whoever called went on after that
            distributed_c10d._get_default_store().delete_key(f"lowtide/failed/{self._name(self.rank)}")
            self._noted = False
        try:
            yield
        except RankFailed as error:
            if not isinstance(error, PeerLost):
                raise
            raise RankFailed(self._cause(what, error)) from error
        except BaseException as error:
            if isinstance(error, RuntimeError) and not isinstance(error, LowtideError) and in_distributed(error):
                raise RankFailed(self._cause(what, error)) from error
            self._noted = True
            self._note("failed", f"{type(error).__name__}: {shortened(str(error), 300)}")
            raise

    def _note(self, kind: str, text: str) -> None:
        try:
            distributed_c10d._get_default_store().set(f"lowtide/{kind}/{self._name(self.rank)}", text)
        except RuntimeError:  # whoever holds the store is gone: nobody is left to read it
            return

    def _name(self, rank: int) -> int:
        return distributed.get_global_rank(self.group, rank)

    def _cause(self, what: str, error: Exception) -> str:
        """Who is missing: those who said that they failed, or those who say nothing when they are asked."""
        self._note("stuck", what)
        silent = [rank for rank in range(self.world) if rank != self.rank]
        end = time.monotonic() + PATIENCE
        store = distributed_c10d._get_default_store()
        try:
            store.set(ASKED, "")
            while silent and time.monotonic() < end:
                for rank in list(silent):
                    if store.check([f"lowtide/failed/{self._name(rank)}"]):
                        said = store.get(f"lowtide/failed/{self._name(rank)}").decode()
                        return f"rank {rank} failed in {what}: {said}"
                    if any(store.check([f"lowtide/{kind}/{self._name(rank)}"]) for kind in ("stuck", "alive")):
                        silent.remove(rank)
                time.sleep(0.05)
        except RuntimeError:
            return f"rank 0, which held the store of the group, is gone in {what}: {shortened(str(error), 200)}"
        if not silent:
            return f"a collective failed in {what}, and all ranks are there: {shortened(str(error), 200)}"
        who = " and ".join(f"rank {rank}" for rank in silent)
        return f"{who} {'is' if len(silent) == 1 else 'are'} gone in {what}: {shortened(str(error), 200)}"


ALONE = Ranks(None, torch.device("cpu"))
"""One process."""


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def in_distributed(error: BaseException) -> bool:
    """Was it raised inside of torch.distributed, or by gloo inside of a backward?"""
    trace, last = error.__traceback__, ""
    while trace is not None:
        last = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return last.startswith(_DISTRIBUTED) or "/gloo/" in str(error)


def budget_fields(error: Exception) -> list[Any] | None:
    if not isinstance(error, BudgetInfeasible):
        return None
    return [error.budget, error.floor, error.proven, list(error.blockers), list(error.workspace)]


def infeasible(text: str, fields: list[Any]) -> BudgetInfeasible:
    """The same error as on the first rank."""
    error = BudgetInfeasible.__new__(BudgetInfeasible, text)
    error.args = (text,)
    error.budget, error.floor, error.proven = fields[:3]
    error.blockers = tuple((s, size) for s, size in fields[3])
    error.workspace = (fields[4][0], fields[4][1])
    return error
