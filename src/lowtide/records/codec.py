"""Frozen dataclasses to versioned JSON and back, equal; no pickle anywhere.

Several records of one kind are written as a table, `{"columns": [...], "rows": [[...], ...]}`: a profile has thousands
of them, and their fields' names are half of its bytes. A list of objects is read too.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self

from lowtide.errors import InputError, shortened, shown
from lowtide.files import write_text
from lowtide.planning.reading import read_object


class Saved:
    """A frozen dataclass with a file format of its own."""

    __slots__ = ()
    FORMAT: ClassVar[str]

    def save(self, path: Path) -> None:
        """Write it as one JSON object that names its format."""
        data = {"format": self.FORMAT, **_encode(self)}
        write_text(path, json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n")

    def text(self) -> str:
        """The same, for another process of this version."""
        return json.dumps(_encode(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """What `text` of another process says."""
        return typing.cast(Self, _decode(cls, json.loads(text), cls.__name__))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read back an equal record; InputError says in one sentence what is wrong with the file."""
        data = read_object(path)
        found = data.pop("format", None)
        if found != cls.FORMAT:
            said = "has no format" if found is None else f"has the format {shown(found)}"
            raise InputError(
                f"{path} is not a {cls.FORMAT} file, it {said}: make it again with this version of lowtide"
            )
        try:
            record = typing.cast(Self, _decode(cls, data, cls.__name__))
            record.check()
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from None
        return record

    def check(self) -> None:
        """Do its numbers name anything? InputError where not."""


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return _table(value) or [_encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be saved")
    return value


def _table(values: Sequence[Any]) -> dict[str, Any] | None:
    """Several records of one kind as columns and rows; None where it is something else."""
    kinds = {type(value) for value in values}
    if len(values) < 2 or len(kinds) != 1 or not dataclasses.is_dataclass(values[0]):
        return None
    names = [f.name for f in dataclasses.fields(values[0])]
    return {"columns": names, "rows": [[_encode(getattr(value, name)) for name in names] for value in values]}


def _objects(table: dict[str, Any], where: str) -> list[Any]:
    """The same as a list of objects, which are checked as such."""
    names, rows = table.get("columns"), table.get("rows")
    if len(table) != 2 or not isinstance(names, list) or not isinstance(rows, list):
        raise InputError(f"{where} must be a list, or a table of 'columns' and 'rows', not {shown(table)}")
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise InputError(f"{where} must have columns with names of their own, not {shown(names)}")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise InputError(f"{where}[{i}] must be a row of {len(names)} values, not {shown(row)}")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (a for a in arguments if a is not type(None))
        return _decode(kind, value, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise InputError(f"{where} must be an object, not {shown(value)}")
        hints = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        for name in names:
            if name not in value:
                raise InputError(f"{where} has no {name!r}")
        for name in value:
            if name not in names:
                raise InputError(f"{where} has the unknown field {shown(name)}")
        return kind(**{name: _decode(hints[name], value[name], f"{where}.{name}") for name in names})
    if origin is tuple:
        if isinstance(value, dict) and dataclasses.is_dataclass(arguments[0]):
            value = _objects(value, where)
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, not {shown(value)}")
        each = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(each) != len(value):
            raise InputError(f"{where} must be a list of {len(each)}, not of {len(value)}")
        return tuple(_decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(each, value, strict=True)))
    if origin is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where} must be an object, not {shown(value)}")
        return {
            _decode(arguments[0], k, where): _decode(arguments[1], v, f"{where}.{shortened(k)}")
            for k, v in value.items()
        }
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise InputError(
                f"{where} must be one of {', '.join(str(x.value) for x in kind)}, not {shown(value)}"
            ) from None
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{where} must be a number within reason, not {shown(value)}") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where} must be of type {kind.__name__}, not {shown(value)}")
    return value
