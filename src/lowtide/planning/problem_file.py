"""Problems on disk: `lowtide-problem/1`, and `/2` where ops stand on lanes or in place, or storages off the device."""

import json
from pathlib import Path
from typing import Any

from lowtide.errors import InputError, shown
from lowtide.files import write_text
from lowtide.planning.problem import COMPUTE, Op, Problem, ProblemError, Storage
from lowtide.planning.reading import (
    check_bytes,
    check_time,
    expect_format,
    flag,
    id_field,
    id_list,
    list_field,
    object_of,
    read_object,
    text_field,
)

FORMATS = ("lowtide-problem/1", "lowtide-problem/2")


def load_problem(path: Path) -> Problem:
    """The verified problem in `path`."""
    content = read_object(path)
    try:
        problem = _parse(content, extended=expect_format(content, FORMATS) == FORMATS[1])
        problem.verify()
        for o in problem.program:
            if problem.ops[o].lane != COMPUTE:
                lane = shown(problem.ops[o].lane)
                raise ProblemError(
                    f"{problem.op_label(o)} stands on the lane {lane}: ops of a program to be planned belong to compute"
                )
    except InputError as error:
        raise ProblemError(f"{path} is no problem that can be planned: {error}") from None
    return problem


_STORAGE_KEYS = ("bytes", "resident", "keep", "name")
_OP_KEYS = ("name", "time", "reads", "writes", "workspace", "once", "optional")


def _parse(content: dict[str, Any], *, extended: bool) -> Problem:
    storages = []
    for s, entry in enumerate(list_field(content, "storages", "the file")):
        where = f"storage {s}"
        record = object_of(entry, where, (*_STORAGE_KEYS, "off_device") if extended else _STORAGE_KEYS)
        if "bytes" not in record:
            raise ProblemError(f"{where} has no 'bytes'")
        storages.append(
            Storage(
                bytes=check_bytes(record["bytes"], f"the size of {where}"),
                resident=flag(record, "resident", where),
                keep=flag(record, "keep", where),
                name=text_field(record, "name", where),
                off_device=flag(record, "off_device", where),
            )
        )
    ops = []
    for o, entry in enumerate(list_field(content, "ops", "the file")):
        where = f"op {o}"
        record = object_of(entry, where, (*_OP_KEYS, "lane", "reuses") if extended else _OP_KEYS)
        if "time" not in record:
            raise ProblemError(f"{where} has no 'time'")
        ops.append(
            Op(
                name=text_field(record, "name", where),
                time=check_time(record["time"], f"the time of {where}"),
                reads=id_list(record, "reads", where),
                writes=id_list(record, "writes", where),
                workspace=check_bytes(record.get("workspace", 0), f"the workspace of {where}"),
                once=flag(record, "once", where),
                optional=flag(record, "optional", where),
                lane=text_field(record, "lane", where, COMPUTE),
                reuses=id_field(record, "reuses", where),
            )
        )
    return Problem(text_field(content, "name", "the file"), tuple(storages), tuple(ops))


def save_problem(problem: Problem, path: Path) -> None:
    """Write `problem`, as version 1 where it needs no more than that."""
    extended = bool(problem.lanes) or any(storage.off_device for storage in problem.storages)
    extended = extended or any(op.reuses is not None for op in problem.ops)
    storages: list[dict[str, Any]] = []
    for storage in problem.storages:
        flags = {key: True for key in ("resident", "keep", "off_device") if getattr(storage, key)}
        storages.append({"bytes": storage.bytes} | flags | ({"name": storage.name} if storage.name else {}))
    ops: list[dict[str, Any]] = []
    for op in problem.ops:
        entry: dict[str, Any] = {"name": op.name, "time": op.time, "reads": list(op.reads), "writes": list(op.writes)}
        entry |= {"workspace": op.workspace} if op.workspace else {}
        entry |= {key: True for key in ("once", "optional") if getattr(op, key)}
        entry |= {"lane": op.lane} if op.lane != COMPUTE else {}
        entry |= {"reuses": op.reuses} if op.reuses is not None else {}
        ops.append(entry)
    content = {"format": FORMATS[extended], "name": problem.name, "storages": storages, "ops": ops}
    write_text(path, json.dumps(content, separators=(",", ":")) + "\n")
