"""A planning problem: storages with bytes, ops with times, in program order. See docs/planner.md for the format."""

from dataclasses import dataclass
from functools import cached_property

from lowtide.errors import InputError, shown
from lowtide.planning.reading import BYTES_LIMIT, check_bytes, check_time

COMPUTE = "compute"


class ProblemError(InputError):
    """A problem that contradicts itself; the message names the op and the storage."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes on the device, named by their place in the problem's list."""

    bytes: int
    resident: bool = False
    """There before the first op and never freed."""
    keep: bool = False
    """Must be alive after the last op."""
    name: str = ""
    off_device: bool = False
    """Kept elsewhere: its bytes do not count."""


@dataclass(frozen=True, slots=True)
class Op:
    """One op: what it reads, what it writes, how long it takes."""

    name: str
    time: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    workspace: int = 0
    """Bytes it takes only while it runs."""
    once: bool = False
    """It has an effect and runs exactly once (where it is optional: at most once)."""
    optional: bool = False
    """No part of the program: a schedule may use it anywhere, or never."""
    lane: str = COMPUTE
    """Ops of another lane than `compute` overlap with it; in the program these are collectives under way."""
    reuses: int | None = None
    """A storage it reads whose bytes its output takes over where nothing reads that instance after it."""


@dataclass(frozen=True)
class Problem:
    """Storages and ops, the ops in program order. The cached parts are what simulator and policies read."""

    name: str
    storages: tuple[Storage, ...]
    ops: tuple[Op, ...]

    @cached_property
    def program(self) -> tuple[int, ...]:
        """The ops of the program, in order."""
        return tuple(o for o, op in enumerate(self.ops) if not op.optional)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """Per storage: the ops that write it, the program's own first."""
        found: list[list[int]] = [[] for _ in self.storages]
        for optional in (False, True):
            for o, op in enumerate(self.ops):
                if op.optional is optional:
                    for s in op.writes:
                        found[s].append(o)
        return tuple(map(tuple, found))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Per storage: the ops that read it, in order, each once."""
        found: list[list[int]] = [[] for _ in self.storages]
        for o, op in enumerate(self.ops):
            for s in dict.fromkeys(op.reads):
                found[s].append(o)
        return tuple(map(tuple, found))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Per op: the storages it reads, each once and without the residents, which are always there."""
        resident = [storage.resident for storage in self.storages]
        return tuple(tuple(s for s in dict.fromkeys(op.reads) if not resident[s]) for op in self.ops)

    @cached_property
    def writes(self) -> tuple[tuple[int, ...], ...]:
        """Per op: the storages it writes."""
        return tuple(op.writes for op in self.ops)

    @cached_property
    def reuses(self) -> tuple[int, ...]:
        """Per op: the storage whose bytes its output takes over where the op is its last reader, -1 for none."""
        return tuple(-1 if op.reuses is None else op.reuses for op in self.ops)

    @cached_property
    def in_place(self) -> bool:
        """Can any op run in place?"""
        return any(op.reuses is not None for op in self.ops)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Per storage: the device bytes of one instance (none where it lives off the device)."""
        return tuple(0 if storage.off_device else storage.bytes for storage in self.storages)

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Per op: its time."""
        return tuple(op.time for op in self.ops)

    @cached_property
    def workspaces(self) -> tuple[int, ...]:
        """Per op: its workspace."""
        return tuple(op.workspace for op in self.ops)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The storages that must be alive after the last op, without the residents, which always are."""
        return tuple(s for s, storage in enumerate(self.storages) if storage.keep and not storage.resident)

    @cached_property
    def resident_bytes(self) -> int:
        """Device bytes that are alive whatever the order."""
        return sum(size for size, storage in zip(self.sizes, self.storages, strict=True) if storage.resident)

    @cached_property
    def base_time(self) -> float:
        """Time of the program order, one op after another."""
        return sum(self.ops[o].time for o in self.program)

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """The lanes beside compute that ops stand on."""
        return tuple(sorted({op.lane for op in self.ops} - {COMPUTE}))

    def op_label(self, o: int) -> str:
        """`op 3 ('conv')`, for messages."""
        name = self.ops[o].name
        return f"op {o} ({shown(name)})" if name else f"op {o}"

    def storage_label(self, s: int) -> str:
        """`storage 3 ('logits')`, for messages."""
        name = self.storages[s].name
        return f"storage {s} ({shown(name)})" if name else f"storage {s}"

    def verify(self) -> None:
        """Raise a ProblemError where the problem contradicts itself."""
        try:
            _verify_numbers(self)
        except ProblemError:
            raise
        except InputError as error:
            raise ProblemError(str(error)) from None
        _verify_writers(self)
        _verify_reuse(self)
        _verify_order(self)


def _verify_numbers(problem: Problem) -> None:
    """Every number is one that makes sense, every id names something."""
    total = 0
    for s, storage in enumerate(problem.storages):
        total += check_bytes(storage.bytes, f"the size of {problem.storage_label(s)}")
        if storage.resident and storage.off_device:
            raise ProblemError(f"{problem.storage_label(s)} cannot be both resident and off the device")
    if total > BYTES_LIMIT:
        raise ProblemError("the storages together are larger than 2^60 bytes")
    for o, op in enumerate(problem.ops):
        label = problem.op_label(o)
        check_time(op.time, f"the time of {label}")
        check_bytes(op.workspace, f"the workspace of {label}")
        if not op.lane:
            raise ProblemError(f"the lane of {label} has no name")
        if op.lane != COMPUTE and (op.workspace or op.reuses is not None):
            raise ProblemError(
                f"{label} stands on the lane {shown(op.lane)}: it can neither have workspace nor reuse bytes"
            )
        for what, ids in (("reads", op.reads), ("writes", op.writes)):
            for s in ids:
                if type(s) is not int or not 0 <= s < len(problem.storages):
                    raise ProblemError(
                        f"{label} {what} storage {shown(s)}, but there are {len(problem.storages)} storages"
                    )
    if not problem.program:
        raise ProblemError("the program has no ops")


def _verify_writers(problem: Problem) -> None:
    """Every storage has the producers it needs and no others."""
    writer: dict[int, int] = {}
    for o, op in enumerate(problem.ops):
        label, seen, reads = problem.op_label(o), set[int](), set(op.reads)
        for s in op.writes:
            named = problem.storage_label(s)
            if problem.storages[s].resident:
                raise ProblemError(
                    f"{label} writes {named}, which is resident: an update in place is an op with 'once'"
                )
            if s in seen:
                raise ProblemError(f"{label} writes {named} twice")
            if s in reads:
                raise ProblemError(f"{label} both reads and writes {named}")
            seen.add(s)
            if not op.optional:
                if s in writer:
                    raise ProblemError(f"{named} is written by both {problem.op_label(writer[s])} and {label}")
                writer[s] = o
    for s, storage in enumerate(problem.storages):
        if not storage.resident and not problem.producers[s]:
            raise ProblemError(f"{problem.storage_label(s)} is not resident and no op writes it")
        if storage.keep and not storage.resident and s not in writer:
            raise ProblemError(f"{problem.storage_label(s)} must be kept, but only optional ops write it")


def _verify_reuse(problem: Problem) -> None:
    """An op that runs in place has one output, as large as the storage it takes over."""
    for o, op in enumerate(problem.ops):
        if op.reuses is None:
            continue
        label = problem.op_label(o)
        if type(op.reuses) is not int or op.reuses not in op.reads:
            raise ProblemError(f"{label} reuses storage {shown(op.reuses)}, which it does not read")
        named, storage = problem.storage_label(op.reuses), problem.storages[op.reuses]
        if storage.resident or storage.off_device:
            where = "resident" if storage.resident else "off the device"
            raise ProblemError(f"{label} reuses {named}, which is {where}")
        if len(op.writes) != 1:
            raise ProblemError(f"{label} reuses {named}, so it must write exactly one storage, not {len(op.writes)}")
        written = problem.storages[op.writes[0]]
        if written.off_device or written.bytes != storage.bytes:
            raise ProblemError(
                f"{label} reuses {named} for {problem.storage_label(op.writes[0])}, which is not of the same bytes"
            )


def _verify_order(problem: Problem) -> None:
    """The program order can run, and every optional op can run somewhere."""
    written: set[int] = set()
    for o in problem.program:
        for s in problem.reads[o]:
            if s not in written:
                later = [w for w in problem.producers[s] if not problem.ops[w].optional]
                how = f"before {problem.op_label(later[0])} writes it" if later else "which only optional ops write"
                raise ProblemError(
                    f"{problem.op_label(o)} reads {problem.storage_label(s)} {how}: that order cannot run"
                )
        written.update(problem.writes[o])
    missing = {o: sum(s not in written for s in problem.reads[o]) for o, op in enumerate(problem.ops) if op.optional}
    ready = [o for o, count in missing.items() if not count]
    while ready:
        for s in problem.writes[ready.pop()]:
            if s not in written:
                written.add(s)
                for o in problem.readers[s]:
                    missing[o] -= 1
                    if not missing[o]:
                        ready.append(o)
    for o, count in missing.items():
        if count:
            s = next(s for s in problem.reads[o] if s not in written)
            raise ProblemError(
                f"{problem.op_label(o)} can never run: {problem.storage_label(s)} needs it first, a cycle"
            )
