"""The tables at the end of `lowtide profile`: the peak, what it is made of, the largest and the slowest."""

from collections.abc import Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lowtide.records.profile import Profile
from lowtide.reporting.memory_breakdown import peak_parts
from lowtide.reporting.style import batch_line, how_measured
from lowtide.units import format_bytes, format_ms

_ROWS = 8
LARGE_SPREAD = 0.25
"""From here on times are not worth much: of plain runs among each other, and of all ops against a plain run."""


def summary(profile: Profile) -> Group:
    """All of it, ready to print."""
    parts = (_step(profile), _breakdown(profile), _activations(profile), _slowest(profile))
    return Group(*(Padding(part, (1, 0, 0, 0), expand=False) for part in parts))


def _step(profile: Profile) -> Table:
    op = profile.ops[profile.peak_rank]
    total = sum(op.runtime_ms for op in profile.ops)
    difference = profile.peak_B / profile.step_peak_B - 1 if profile.step_peak_B else 0.0
    ratio = total / profile.step_ms - 1 if profile.step_ms else 0.0
    spread = f" ± {format_ms(profile.step_spread_ms / 2)}" if profile.runs > 1 else ""
    rows = {
        "model": f"{profile.model}, {profile.optimizer}, {profile.device}, {profile.threads} threads",
        "batch": batch_line(profile),
        "ops": f"{len(profile.ops):,}, of them {sum(op.is_view for op in profile.ops):,} views",
        "peak": f"{format_bytes(profile.peak_B)} ({profile.peak_B:,} bytes)",
        "  at": f"rank {op.rank} of {len(profile.ops)}, {op.phase}: {op.name} ({op.op})",
        "  module": op.module or "(none)",
        "  line": op.source or "(unknown)",
        "  plain run": f"{format_bytes(profile.step_peak_B)}, the op-by-op peak differs by {difference:+.2%}",
        "bytes from": profile.memory_source,
        "step": f"{format_ms(profile.step_ms)}{spread} for a plain run",
        "  op times": f"{format_ms(total)} added up, {ratio:+.1%} ({how_measured(profile)})",
    }
    if doubt := _doubt(profile, ratio):
        rows["  WARNING"] = doubt
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    return table


def _doubt(profile: Profile, ratio: float) -> str:
    """Why the op times say little, where they do: the machine was busy, or not always equally fast."""
    spread = profile.step_spread_ms / profile.step_ms if profile.step_ms else 0.0
    if spread <= LARGE_SPREAD and abs(ratio) <= LARGE_SPREAD:
        return ""
    why = f"plain runs differ by {spread:.0%}" if spread > LARGE_SPREAD else f"the ops add up to {ratio:+.0%}"
    return f"{why}, so the op times say little, bytes are right: measure again on an idle machine, with more --runs"


def _breakdown(profile: Profile) -> Table:
    rows = [(word, format_bytes(size), f"{size / profile.peak_B:.1%}") for word, size in peak_parts(profile).items()]
    rows.append(("all", format_bytes(profile.peak_B), "100.0%"))
    return _table("What the peak is made of", ("", "bytes", "share"), rows, numbers=2)


def _activations(profile: Profile) -> Table:
    total = sum(a.memory_size_B for a in profile.activations)
    largest = sorted(profile.activations, key=lambda a: -a.memory_size_B)[:_ROWS]
    rows = [
        (
            *(a.name, a.module, a.source, format_bytes(a.memory_size_B)),
            *(format_ms(a.inactive_time_ms), format_ms(a.recomp_time_ms), format_ms(a.swap_time_ms)),
        )
        for a in largest
    ]
    title = f"Largest of {len(profile.activations):,} activations ({format_bytes(total)})"
    return _table(title, ("name", "module", "line", "bytes", "idle", "recompute", "swap"), rows, numbers=4)


def _slowest(profile: Profile) -> Table:
    total = sum(op.runtime_ms for op in profile.ops)
    rows = [
        (
            *(op.name, op.module, op.source, op.phase.value, format_ms(op.runtime_ms)),
            f"{op.runtime_ms / total if total else 0:.1%}",
        )
        for op in sorted(profile.ops, key=lambda op: -op.runtime_ms)[:_ROWS]
    ]
    return _table("Slowest ops", ("name", "module", "line", "phase", "time", "share"), rows, numbers=2)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> Table:
    """A plain table whose last `numbers` columns are numbers. Names are shown as they are, never as markup."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        number = place >= len(columns) - numbers
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(" ".join(cell.split())) for cell in row))
    return table
