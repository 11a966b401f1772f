"""A `Fit` for people: a table, and memory over the step with the device's limit."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lowtide.fitting.record import Fit
from lowtide.records.vocabulary import Role
from lowtide.reporting.style import LIMIT_COLOUR, ROLE_WORDS, WITH, WITHOUT, Scale, framed
from lowtide.units import format_bytes


def table(fits: Sequence[Fit], largest: Sequence[tuple[int, int]] = ()) -> Table:
    """A column for each device; `largest` has the largest batch as it is and with a plan, where it was looked for."""
    first = fits[0]
    shown = Table(
        title=f"{first.model}, {first.parameters / 1e6:,.1f} M parameters, {shapes(first)}; {first.optimizer}",
        title_justify="left",
    )
    shown.add_column("", style="bold")
    for fit in fits:
        shown.add_column(fit.device if fit.world == 1 else f"{fit.world} x {fit.device}", justify="right")
    for number, part in enumerate(first.parts):
        word = ROLE_WORDS.get(Role(part.what)) if part.what in set(Role) else part.what
        shown.add_row(f"{word}, at the peak", *(format_bytes(fit.parts[number].bytes) for fit in fits))
    shown.add_row("peak as it is", *(format_bytes(fit.peak_B) for fit in fits))
    shown.add_row("room for it", *(format_bytes(fit.budget_B) for fit in fits))
    shown.add_row("fits as it is", *("yes" if fit.fits else "no" for fit in fits))
    shown.add_row("with a plan", *(_with_plan(fit) for fit in fits))
    shown.add_row("step, estimated", *(f"{fit.step_ms:,.0f} ms" for fit in fits))
    shown.add_row("samples a second, estimated", *(_rate(fit) for fit in fits))
    if largest:
        shown.add_row("largest batch as it is", *(f"{plain:,}" for plain, _ in largest))
        shown.add_row("largest batch with a plan", *(f"{planned:,}" for _, planned in largest))
    return shown


def shapes(fit: Fit) -> str:
    """The batch's tensors in one line."""
    return ", ".join(line.removesuffix(" on cpu") for line in fit.batch)


def _with_plan(fit: Fit) -> str:
    if fit.fits:
        return "none needed"
    if fit.plan is None:
        return f"no: at least {format_bytes(fit.least_B or 0)}"
    return f"yes: {format_bytes(fit.plan.peak_B)}, {100 * fit.plan.overhead:+.1f} % time"


def _rate(fit: Fit) -> str:
    rate = fit.samples_per_second
    return "-" if rate is None else f"{rate:,.2f}"


def draw(fit: Fit, path: Path) -> None:
    """Memory over the step, as it is and with the plan."""
    curves = [("as it is", WITHOUT, fit.curve)]
    if fit.plan is not None:
        curves.append(("with a plan", WITH, fit.plan.curve))
    bytes_, ms = Scale.of_bytes(fit.peak_B), Scale.of_ms(curves[-1][2][-1].ms)
    lines = (
        f"{shapes(fit)}; optimizer: {fit.optimizer}",
        f"{fit.device}; bytes of the captured step, workspaces and all times estimated; nothing was run",
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
