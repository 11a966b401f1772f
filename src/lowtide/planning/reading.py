"""Reading JSON that somebody else wrote: size limit, typed fields, every fault one sentence."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from lowtide.errors import InputError, shortened, shown

FILE_LIMIT = 64 * 2**20
"""The largest file that is read, in bytes: about 500,000 ops."""
BYTES_LIMIT = 2**60
"""The largest size, of one storage and of all together."""
TIME_LIMIT = 10**18
"""The largest time of one op."""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; an InputError in one sentence where it cannot be had."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > FILE_LIMIT:
        raise InputError(f"{path} is larger than {FILE_LIMIT // 2**20} MiB, the most that is read")
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a file of ours") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {shortened(str(error), 200)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, not {_kind(content)}")
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def expect_format(content: dict[str, Any], accepted: tuple[str, ...]) -> str:
    """The value of `format`, one of `accepted`."""
    found = content.get("format")
    if found not in accepted:
        said = "no format" if found is None else f"format {shown(found)}"
        raise InputError(f"it has {said}; {' or '.join(accepted)} can be read")
    return str(found)


def list_field(record: dict[str, Any], key: str, where: str) -> list[Any]:
    """The list under `key`."""
    if key not in record:
        raise InputError(f"{where} has no {key!r}")
    value = record[key]
    if not isinstance(value, list):
        raise InputError(f"{key!r} of {where} must be a list, not {_kind(value)}")
    return value


def id_list(record: dict[str, Any], key: str, where: str) -> tuple[int, ...]:
    """The list of whole numbers under `key`; whether they name anything is for the verifier to say."""
    values = list_field(record, key, where)
    for value in values:
        if type(value) is not int:
            raise InputError(f"{key!r} of {where} must hold whole numbers, not {shown(value)}")
    return tuple(values)


def id_field(record: dict[str, Any], key: str, where: str) -> int | None:
    """The whole number under `key`, None where absent."""
    if key not in record:
        return None
    value = record[key]
    if type(value) is not int:
        raise InputError(f"{key!r} of {where} must be a whole number, not {shown(value)}")
    return value


def object_of(value: object, where: str, keys: Iterable[str]) -> dict[str, Any]:
    """`value` as an object that has no other keys than `keys`."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a JSON object, not {_kind(value)}")
    unknown = [key for key in value if key not in keys]
    if unknown:
        raise InputError(f"{where} has the unknown key {shown(unknown[0])}")
    return value


def text_field(record: dict[str, Any], key: str, where: str, default: str = "") -> str:
    """The text under `key`."""
    value = record.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{key!r} of {where} must be text, not {_kind(value)}")
    return value


def flag(record: dict[str, Any], key: str, where: str) -> bool:
    """True or false under `key`, false where absent."""
    value = record.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{key!r} of {where} must be true or false, not {shown(value)}")
    return value


def check_bytes(value: object, what: str) -> int:
    """`value` as a number of bytes."""
    if type(value) is not int:
        raise InputError(f"{what} must be a whole number of bytes, not {shown(value)}")
    if not 0 <= value <= BYTES_LIMIT:
        raise InputError(f"{what} must be between 0 and 2^60 bytes, not {shown(value)}")
    return value


def check_time(value: object, what: str) -> float:
    """`value` as a time: a finite number, whole numbers left whole so that sums stay exact."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what} must be a number, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{what} must be finite, not {value}")
    if not 0 <= value <= TIME_LIMIT:
        raise InputError(f"{what} must be between 0 and 10^18, not {shown(value)}")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
