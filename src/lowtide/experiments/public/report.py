"""Published runs and predictions as a table."""

from rich.table import Table

from lowtide.experiments.public.record import PublicRuns, Said
from lowtide.units import format_bytes


def how(said: Said) -> str:
    """A run's settings in words."""
    run = said.run
    ways = {"tokens": f"{run.batch} x {run.length:,}", "samples": f"{run.batch} x {run.length:,}"}[run.unit]
    parts = [ways]
    if run.world > 1:
        parts.append(f"FSDP {run.world // run.tensor}" + (f" x TP {run.tensor}" if run.tensor > 1 else ""))
    if run.checkpoint != "none":
        parts.append(run.checkpoint)
    if run.compiled != "none":
        parts.append("compiled")
    if run.accumulate > 1:
        parts.append(f"{run.accumulate} summed")
    return ", ".join(parts)


def rate(per_second: float) -> str:
    """Tokens or samples a second."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def public_table(found: PublicRuns) -> Table:
    """One row for each."""
    table = Table("run", "device", "how", "memory published", "said", "rate published", "said", "held back", box=None)
    for said in found.said:
        run, at, late = said.run, said.bytes_error, said.time_error
        whole = said.reserved_B + (run.context_MiB << 20)
        table.add_row(
            run.name,
            run.device,
            how(said),
            "" if run.GiB is None else f"{run.GiB} GiB",
            format_bytes(whole) + ("" if at is None else f" ({at:+.1%})"),
            "" if run.per_second is None else f"{rate(run.per_second)} {run.unit}/s",
            rate(said.per_second) + ("" if late is None else f" ({late:+.0%})"),
            "yes" if run.held_back else "no",
        )
    return table
