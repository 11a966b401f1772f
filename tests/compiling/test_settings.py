"""What is asked of the backend, and where from."""

import pytest

import lowtide
from lowtide.compiling.settings import settings_of


def test_options_come_before_configure_and_that_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_BUDGET", "1GiB")
    assert settings_of(None).budget_bytes == 2**30
    lowtide.configure(budget="2GiB", reserve="1MiB")
    try:
        assert settings_of(None).budget_bytes == 2**31
        assert settings_of({"budget": "3GiB"}).budget_bytes == 3 * 2**30
        assert settings_of({"budget": "3GiB"}).reserve_bytes == 2**20
    finally:
        lowtide.configure()
    assert settings_of(None).budget_bytes == 2**30


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("budget", "60%", "only bytes make sense"),
        ("budget", -1, "more than zero bytes"),
        ("executor", "cudagraphs", "there is no executor 'cudagraphs'; there are eager, inductor"),
        ("policy", "best", "there is no policy"),
        ("time_limit", 0, "time_limit must be"),
    ],
)
def test_what_makes_no_sense_is_refused(option: str, value: object, says: str) -> None:
    with pytest.raises(lowtide.InputError, match=says):
        settings_of({option: value})
