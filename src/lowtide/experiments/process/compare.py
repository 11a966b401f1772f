"""Two runs of one bench, before and after: what has become worse by more than noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

from rich.table import Table
from rich.text import Text

from lowtide.errors import InputError
from lowtide.experiments.process.record import KindRow, ProcessMemory
from lowtide.reporting.tables import figures_table
from lowtide.units import format_bytes

LEAST_TIME = 0.01
"""Share of a step: less is not worth a word, however steady."""
LEAST_BYTES = 0.002
"""Share of a peak, which hardly has noise."""


@dataclass(frozen=True, slots=True)
class Change:
    """Of one figure of one kind."""

    kind: str
    figure: str
    before: str
    after: str
    is_worse: bool


def changes(before: ProcessMemory, after: ProcessMemory) -> list[Change]:
    """Whatever differs by more than noise, kind by kind.

    A time is one against warm eager's of the same round, so that two machines' moods cancel; it has changed if the
    middle halves of its rounds do not overlap.
    """
    same = (before.model, before.batch_size, before.optimizer) == (after.model, after.batch_size, after.optimizer)
    if not same:
        raise InputError(
            f"these are runs of {before.model} (batch {before.batch_size}, {before.optimizer}) and {after.model} "
            f"(batch {after.batch_size}, {after.optimizer}): compare two runs of one"
        )
    old = {(row.kind, row.group): row for row in before.rows}
    pairs = [(old[row.kind, row.group], row) for row in after.rows if (row.kind, row.group) in old]
    if not pairs:
        raise InputError("the two runs have no kind of step in common: nothing can be compared")
    return [change for a, b in pairs for change in _of_kind(before, a, after, b)]


def _of_kind(before: ProcessMemory, a: KindRow, after: ProcessMemory, b: KindRow) -> Iterator[Change]:
    if (a.failure is None) != (b.failure is None):
        yield Change(b.kind, "plan", a.failure or "found", b.failure or "found", b.failure is not None)
    if a.failure is not None or b.failure is not None:
        return
    if before.is_equal(a) != after.is_equal(b):
        said = {True: "equal", False: "others"}
        yield Change(b.kind, "losses", said[before.is_equal(a)], said[after.is_equal(b)], before.is_equal(a))
    for figure, x, y in (
        ("allocator", before.peak(a), after.peak(b)),
        ("process", before.high(a), after.high(b)),
    ):
        if x is not None and y is not None and abs(y / x - 1) > LEAST_BYTES:
            yield Change(b.kind, figure, format_bytes(x), format_bytes(y), y > x)
    was, now = before.against_warm(a), after.against_warm(b)
    apart = max(_middle(now)[0] - _middle(was)[1], _middle(was)[0] - _middle(now)[1])
    if apart > 0 and abs(median(now) - median(was)) > LEAST_TIME:
        yield Change(
            b.kind,
            "time against warm eager",
            f"{median(was):+.1%}",
            f"{median(now):+.1%}",
            median(now) > median(was),
        )


def _middle(values: list[float]) -> tuple[float, float]:
    """The middle half of them."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def changes_table(name: str, found: list[Change]) -> Table:
    """What is worse first."""
    table = figures_table(Text(f"{name}: what has changed by more than noise"), ("kind", "what", "before", "after", ""))
    for change in sorted(found, key=lambda change: not change.is_worse):
        verdict = "worse" if change.is_worse else "better"
        table.add_row(change.kind, change.figure, change.before, change.after, verdict)
    return table
