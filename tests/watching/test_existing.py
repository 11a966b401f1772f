"""What was there before a trace, and what was not."""

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lowtide.watching import existing
from lowtide.watching.existing import Existing, addresses


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_addresses_are_the_ids(known: bool, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existing, "_KNOWN_LAYOUT", known)
    objects: list[Any] = [object() for _ in range(count)]
    assert addresses(objects).tolist() == [id(x) for x in objects]


def test_old_and_new() -> None:
    old = [SimpleNamespace(number=k) for k in range(5000)]
    there = Existing()
    new = [SimpleNamespace(number=k) for k in range(5000)]
    assert all(x in there for x in old)
    assert not any(x in there for x in new)


def test_what_shares_a_place_in_the_table_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existing, "_SLOTS", 2)
    test_old_and_new()


def test_functions_and_generators() -> None:
    def maker(k: int) -> Callable[[], int]:
        return lambda: k

    functions = [maker(k) for k in range(3)]
    waiting: Any = (k for k in range(3))
    ended = (k for k in range(0))
    next(waiting)
    assert list(ended) == []
    there = Existing()
    assert set(there.functions_of(functions[0].__code__)) == set(functions)
    assert there.waiting()[id(waiting.gi_frame)] is waiting
    assert ended not in there.waiting().values()


def test_what_is_frozen_is_there_too() -> None:
    frozen = [1]
    gc.freeze()
    try:
        assert frozen in Existing()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
