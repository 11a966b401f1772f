"""Frozen dataclasses to versioned JSON and back, equal; no pickle anywhere."""

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from lowtide.errors import InputError
from lowtide.files import write_text

T = TypeVar("T")


def save_record(record: Any, path: Path, *, version: str) -> None:
    """Write `record` as one JSON object whose `format` is `version`."""
    write_text(path, json.dumps({"format": version, **_encode(record)}, separators=(",", ":"), allow_nan=False) + "\n")


def load_record(kind: type[T], path: Path, *, version: str) -> T:
    """Read a record of `kind` back; InputError says in one sentence what is wrong with the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("format") != version:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{path} is not a {version} file but {found!r}: make it again with this version of lowtide")
    data.pop("format")
    try:
        return typing.cast(T, _decode(kind, data, kind.__name__))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be saved")
    return value


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (a for a in arguments if a is not type(None))
        return _decode(kind, value, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"{where} must be an object")
        hints = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        if set(names) != set(value):
            raise ValueError(f"{where} has the fields {sorted(value)}, not {sorted(names)}")
        return kind(**{name: _decode(hints[name], value[name], f"{where}.{name}") for name in names})
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{where} must be a list")
        each = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        return tuple(_decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(each, value, strict=True)))
    if origin is dict:
        if not isinstance(value, dict):
            raise TypeError(f"{where} must be an object")
        return {_decode(arguments[0], k, where): _decode(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{where} must be of type {kind.__name__}, not {value!r}")
    return value
