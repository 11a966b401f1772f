"""A `Fit` for people: a table, and memory over the step with the device's limit."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lowtide.fitting.record import MOST_UNITS, Fit
from lowtide.records.vocabulary import Role
from lowtide.reporting.style import LIMIT_COLOUR, ROLE_WORDS, WITH, WITHOUT, Scale, framed, shorten
from lowtide.units import format_bytes, format_ms


def table(fits: Sequence[Fit]) -> Table:
    """A column for each device."""
    shown = Table(title=title(fits[0]), title_justify="left")
    shown.add_column("", style="bold")
    for fit in fits:
        shown.add_column(column(fit), justify="right")
    for row in rows(fits):
        shown.add_row(*row)
    return shown


def title(fit: Fit) -> str:
    """Model, batch and optimizer."""
    count = f"{fit.parameters / 1e6:,.1f} M" if fit.parameters >= 1e6 else f"{fit.parameters:,}"
    return f"{fit.model}, {count} parameters, {shapes(fit)}; {fit.optimizer}"


def timings(fits: Sequence[Fit]) -> str:
    """Where the time of finding out went, a line for each device."""
    return "\n".join(
        f"{column(fit)}: {', '.join(f'{stage.what} {stage.seconds:.1f} s' for stage in fit.seconds)}" for fit in fits
    )


def column(fit: Fit) -> str:
    """The device, or the devices and how they share the work."""
    shared = f", layers over {fit.tensor}" if 1 < fit.tensor < fit.world else ""
    tokens = ", and tokens between them" if fit.sequence else ""
    return fit.device if fit.world == 1 else f"{fit.world} x {fit.device}, {fit.parallel}{shared}{tokens}"


def usually(fit: Fit) -> str:
    """How the step runs without a plan, in words."""
    words = {"none": "", "blocks": "blocks compiled", "model": "compiled"}[fit.compiled]
    parts = [] if fit.checkpoint == "none" else [f"{fit.checkpoint} checkpointing"]
    parts += [words] if words else []
    if fit.accumulate:
        parts.append("gradients that stay" if fit.accumulate == 1 else f"gradients of {fit.accumulate} batches summed")
    return f"with {', '.join(parts)}" if parts else "as it is"


def rows(fits: Sequence[Fit]) -> list[tuple[str, ...]]:
    """The table: a name, then a cell for each device."""
    as_it_is = usually(fits[0])
    found = []
    for number, part in enumerate(fits[0].parts):
        word = ROLE_WORDS.get(Role(part.what)) if part.what in set(Role) else f"{part.what}, estimated"
        found.append((f"{word}, at the peak", *(format_bytes(fit.parts[number].bytes) for fit in fits)))
    found.append((f"peak {as_it_is}", *(format_bytes(fit.peak_B) for fit in fits)))
    if any(fit.reserved_B is not None for fit in fits):
        found.append(("reserved by torch's allocator", *(_reserved(fit) for fit in fits)))
    found += [
        ("room for it", *(format_bytes(fit.budget_B) for fit in fits)),
        (f"fits {as_it_is}", *(_fits(fit) for fit in fits)),
        ("with a plan", *(_with_plan(fit) for fit in fits)),
        (f"step {as_it_is}, estimated", *(f"{format_ms(fit.step_ms)} {_error(fit.time_error)}" for fit in fits)),
        (f"{_unit(fits[0])} a second of each device, estimated", *(_rate(fit) for fit in fits)),
    ]
    for name, field in (
        ("largest batch", "largest_batch"),
        ("longest sample", "largest_length"),
        ("fewest devices", "devices_needed"),
    ):
        most = [getattr(fit, field) for fit in fits]
        if any(each is not None for each in most):
            found.append((f"{name} {as_it_is}", *(_count(each and each.as_it_is) for each in most)))
            found.append((f"{name} with a plan", *(_count(each and each.planned) for each in most)))
    return found


def _error(share: float) -> str:
    return f"± {100 * share:.0f} %"


def _reserved(fit: Fit) -> str:
    return "-" if fit.reserved_B is None else f"{format_bytes(fit.reserved_B)} {_error(fit.bytes_error)}"


def _fits(fit: Fit) -> str:
    if fit.fits and not fit.finds_room:
        return "only without holes"
    return "yes" if fit.fits else "no"


def _unit(fit: Fit) -> str:
    return "tokens" if fit.tokens else "samples"


def _count(number: int | None) -> str:
    if number is None:
        return "none"
    return f"{number:,}" if number < MOST_UNITS else f"{number:,} or more"


def shapes(fit: Fit) -> str:
    """The batch's tensors in one line."""
    return ", ".join(line.removesuffix(" on cpu") for line in fit.batch)


def _with_plan(fit: Fit) -> str:
    if fit.fits and fit.plan is None:
        return "none needed"
    if fit.plan is None:
        return f"no: the least found is {format_bytes(fit.least_B or 0)}"
    return f"yes: {format_bytes(fit.plan.peak_B)}, {100 * fit.plan.overhead:+.1f} % time"


def _rate(fit: Fit) -> str:
    rate = fit.samples_per_second
    if rate is None:
        return "-"
    return f"{rate * fit.tokens:,.0f}" if fit.tokens else f"{rate:,.2f}" if rate < 100 else f"{rate:,.0f}"


def draw(fit: Fit, path: Path) -> None:
    """Memory over the step, as it is and with the plan."""
    curves = [("as it is" if fit.checkpoint == "none" else f"{fit.checkpoint} checkpointing", WITHOUT, fit.curve)]
    if fit.plan is not None:
        curves.append(("with a plan", WITH, fit.plan.curve))
    bytes_, ms = Scale.of_bytes(fit.peak_B), Scale.of_ms(curves[-1][2][-1].ms)
    lines = (
        f"{shapes(fit)}; optimizer: {fit.optimizer}",
        f"{shorten(column(fit), 85)}; not run: times and workspaces estimated",
    )
    with framed(path, f"{fit.model}: will it fit?", lines, (9.0, 5.0)) as body:
        axes = body.subplots()
        for label, colour, curve in curves:
            times, sizes = [m.ms / ms.factor for m in curve], [m.bytes / bytes_.factor for m in curve]
            axes.fill_between(times, sizes, color=colour, alpha=0.12, lw=0)
            axes.plot(times, sizes, color=colour, label=label, lw=1.5)
        limit = fit.budget_B / bytes_.factor
        axes.axhline(limit, color=LIMIT_COLOUR, lw=1.2, ls="--", label="room for it")
        axes.set_ylim(0, 1.15 * max(limit if limit < 3 * fit.peak_B / bytes_.factor else 0, fit.peak_B / bytes_.factor))
        axes.set_xlim(left=0)
        axes.set_xlabel(f"time in the step, {ms.unit}")
        axes.set_ylabel(f"live bytes, {bytes_.unit}")
        axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.0))
