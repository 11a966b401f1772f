"""Bytes and durations: the one place where they are parsed and printed."""

import math
import re

from lowtide.errors import InputError, shown

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*|%)\s*", re.IGNORECASE)


def parse_bytes(text: str | int, *, whole: int | None = None, of: str = "the unplanned peak") -> int:
    """Bytes from `4096`, `"4GiB"`, `"500 MB"`, or `"60%"` of `whole` (rounded up), which `of` names in errors."""
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise InputError(f"a size must be a whole number of bytes or text such as '4GiB', not {shown(text)}")
    if isinstance(text, int):
        if text <= 0:
            raise InputError(f"a size must be more than zero bytes, not {shown(text)}")
        return text
    match = _NUMBER.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or (unit != "%" and unit not in _UNITS):
        raise InputError(f"{shown(text)} is no size: write a number of bytes, '4GiB', '500MB' or '60%'")
    number = float(match.group(1))
    if not math.isfinite(number):
        raise InputError(
            f"{shown(text)} is more than any memory has: write a number of bytes, '4GiB', '500MB' or '60%'"
        )
    if unit == "%":
        if whole is None:
            raise InputError(f"{shown(text)} is a share, but here only bytes make sense: write for example '4GiB'")
        if not 0 < number <= 100:
            raise InputError(f"{shown(text)} must be above 0% and at most 100% of {of}")
        return math.ceil(whole * number / 100)
    size = math.ceil(number * _UNITS[unit])
    if size <= 0:
        raise InputError(f"a size must be more than zero bytes, not {shown(text)}")
    return size


def format_bytes(size: float) -> str:
    """`1536` as `1.5 KiB`: binary units, three to four significant digits."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{sign}{size:.0f} {unit}" if unit == "B" else f"{sign}{size:.{2 if size < 10 else 1}f} {unit}"
        size /= 1024
    return f"{sign}{size:.2f} TiB"


def format_ms(milliseconds: float) -> str:
    """`0.5` as `500 us`, `1500` as `1.50 s`."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    if milliseconds >= 1:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds * 1000:.0f} us"
