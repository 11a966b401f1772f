import pytest

from lowtide.errors import InputError
from lowtide.units import format_bytes, format_ms, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4GiB", 4 * 2**30),
        ("1.5 MiB", 3 * 2**19),
        ("2gb", 2 * 10**9),
        (".5k" + "ib", 512),
    ],
)
def test_parses_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


def test_a_share_is_of_the_whole_and_rounds_up() -> None:
    assert parse_bytes("60%", whole=1001) == 601


@pytest.mark.parametrize("text", ["", "four", "4 GiBs", "-1", "nan", "inf", "1e9", "0", "0%", "101%", 0, -5, True])
def test_refuses_what_is_no_size(text: str | int) -> None:
    with pytest.raises(InputError):
        parse_bytes(text, whole=100)


def test_a_share_needs_a_whole() -> None:
    with pytest.raises(InputError, match="only bytes make sense"):
        parse_bytes("60%")


def test_formats() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1536, 10 * 2**20, 2**30)] == [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "10.0 MiB",
        "1.00 GiB",
    ]
    assert [format_ms(x) for x in (0.5, 1.25, 1500)] == ["500 us", "1.2 ms", "1.50 s"]
