"""The table of docs/planner.md, from the CSV files that `make bench-planner` wrote: written here, checked by a test."""

import csv
from pathlib import Path

_FOLDERS = ("graphs", "densenet121", "transformer", "resnet32", "steps")
_HEAD = ("| problem | budget | overhead | bound | gap | seconds |", "|---|---|---|---|---|---|")


def planner_table(folder: Path) -> str:
    """One row per problem and budget, in percent of the program's own time."""
    rows = []
    for name in _FOLDERS:
        with (folder / name / "planner.csv").open(encoding="utf-8", newline="") as file:
            rows += [_row(row) for row in csv.DictReader(file)]
    return "\n".join([*_HEAD, *rows])


def scaling_table(folder: Path) -> str:
    """Repeated blocks: planning time and gap against the number of ops."""
    with (folder / "scaling" / "scaling.csv").open(encoding="utf-8", newline="") as file:
        rows = [f"| {row['ops']} | {_shares(row)} | {float(row['seconds']):.1f} |" for row in csv.DictReader(file)]
    return "\n".join(["| ops | overhead | bound | gap | seconds |", "|---|---|---|---|---|", *rows])


def _row(row: dict[str, str]) -> str:
    budget = row["budget"] if row["budget"].endswith("%") else f"{int(row['budget_bytes']):,} B"
    return f"| {row['problem']} ({row['ops']}) | {budget} | {_shares(row)} | {float(row['seconds']):.1f} |"


def _shares(row: dict[str, str]) -> str:
    if row["infeasible"] == "1":
        return "none, proven | | "
    if not row["overhead"]:
        return "not reached | | "
    return " | ".join(f"{float(row[key]):.3%}" for key in ("overhead", "bound", "gap"))
