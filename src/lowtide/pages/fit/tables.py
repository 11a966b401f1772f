"""The tables of docs/fit.md, from the records that `make fits` wrote under reports/fit."""

from pathlib import Path

from lowtide.fitting.record import Fit
from lowtide.units import format_bytes

PUBLISHED = {"8": (82.4, 5762), "128": (67.0, 5605), "8-long": (83.9, None)}
"""By folder: what torchtitan reports of the same run, GiB reserved and tokens a second of a device. The long one is not
comparable in time: float8 and torch.compile there."""
_PUBLISHED_HEAD = (
    "| devices | batch | checkpointing | reserved: published | said | tokens a second of a device: published | said |",
    "|---|---|---|---|---|---|---|",
)
_PLANS_HEAD = (
    "| room | peak of the plan | time of the plan | at best, proven | tokens a second of a device |",
    "|---|---|---|---|---|",
)
_MISSING = "to be made: `make fits`"
_LONGEST_HEAD = ("| room | longest sample, selective checkpointing | with a plan |", "|---|---|---|")


def published_table(folder: Path) -> str:
    """What is said of published runs, beside what was published."""
    rows = []
    for name, (reserved, rate) in PUBLISHED.items():
        (path,) = (folder / name).glob("*.json")
        fit = Fit.load(path)
        rated = _rate(fit, fit.step_ms)
        said = (fit.reserved_B or 0) / (1 << 30)
        cells = (
            f"{fit.world} | {fit.samples} x {fit.tokens:,} | {fit.checkpoint} | {reserved} GiB",
            f"{said:.1f} GiB ({said / reserved - 1:+.1%})",
            *(("", "") if rate is None else (f"{rate:,}", f"{rated:,.0f} ({rated / rate - 1:+.0%})")),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*_PUBLISHED_HEAD, *rows])


def plans_table(folder: Path) -> str:
    """What plans need and cost in less and less room."""
    rows = []
    for fit in _by_room(folder / "8-plans"):
        cells = f"none: the least found is {format_bytes(fit.least_B or 0)} | | |"
        if fit.plan is not None:
            shares = f"{fit.plan.overhead:+.1%} | {fit.plan.bound:+.1%}"
            cells = f"{format_bytes(fit.plan.peak_B)} | {shares} | {_rate(fit, fit.plan.step_ms):,.0f}"
        rows.append(f"| {format_bytes(fit.budget_B)} | {cells} |")
    return "\n".join([*_PLANS_HEAD, *(rows or [f"| {_MISSING} | | | | |"])])


def longest_table(folder: Path) -> str:
    """The longest sample in less and less room."""
    rows = []
    for fit in _by_room(folder / "8-longest"):
        assert fit.largest_length is not None
        cells = " | ".join(f"{tokens or 0:,}" for tokens in (fit.largest_length.as_it_is, fit.largest_length.planned))
        rows.append(f"| {format_bytes(fit.budget_B)} | {cells} |")
    return "\n".join([*_LONGEST_HEAD, *(rows or [f"| {_MISSING} | | |"])])


def _by_room(folder: Path) -> list[Fit]:
    return sorted((Fit.load(path) for path in folder.glob("*.json")), key=lambda fit: -fit.budget_B)


def _rate(fit: Fit, step_ms: float) -> float:
    """Tokens a second."""
    return 1000 * fit.samples * fit.tokens / fit.tensor / step_ms
