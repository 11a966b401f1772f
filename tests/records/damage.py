"""Files broken on purpose, place by place."""

import copy
from collections.abc import Iterator
from typing import Any

LONG = "x" * 100_000
Place = tuple[str | int, ...]


def listed(content: Any) -> Any:
    """`content` with every table of records as a list of objects, which is read as well."""
    if isinstance(content, list):
        return [listed(entry) for entry in content]
    if not isinstance(content, dict):
        return content
    if set(content) == {"columns", "rows"}:
        return [dict(zip(content["columns"], listed(row), strict=True)) for row in content["rows"]]
    return {key: listed(entry) for key, entry in content.items()}


def broken(content: Any) -> Iterator[tuple[Place, Any]]:
    """`content` with one thing wrong, for every kind of place in it; of long lists the first and the last entry."""
    for place in _places(content):
        value = content
        for key in place:
            value = value[key]
        for other in _others(value):
            yield place, _put(content, place, other)


def _places(value: Any) -> Iterator[Place]:
    yield ()
    entries: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list) and value:
        entries = list({0: value[0], len(value) - 1: value[-1]}.items())
    for key, entry in entries:
        yield from ((key, *place) for place in _places(entry))


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value, 3, None]
    if isinstance(value, int):
        return [-1, 0, value + 1, 10**9, 10**400, LONG, None]
    if isinstance(value, float):
        return [-1.0, 0, 1e308, 10**400, LONG, None]
    if isinstance(value, str):
        return ["", LONG, 5, None]
    if isinstance(value, list):
        return [[], value[:-1], value + value[-1:], value[::-1], {}, None]
    if isinstance(value, dict):
        return [{}, [], None, dict(list(value.items())[1:]), {**value, LONG: 1}]
    return [5, LONG, []]


def _put(content: Any, place: Place, other: Any) -> Any:
    if not place:
        return other
    changed = copy.copy(content)
    changed[place[0]] = _put(changed[place[0]], place[1:], other)
    return changed
