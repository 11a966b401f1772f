"""Compiled Python: where it cannot be kept, it works all the same and says so once."""

from typing import Any

import pytest

from lowtide.planning.optimal import compiled


def test_without_a_folder_to_keep_it_in(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def njit(function: Any, *, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(compiled, "njit", njit)
    compiled._tell_that_nothing_is_kept.cache_clear()
    assert [compiled.entry(abs)(-2), compiled.entry(max)(3, 4)] == [2, 4]
    assert [record.message.count("NUMBA_CACHE_DIR") for record in caplog.records] == [1]
    compiled._tell_that_nothing_is_kept.cache_clear()
