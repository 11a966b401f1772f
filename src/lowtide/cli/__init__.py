"""The command line: one module per command in `lowtide.cli`, library errors become one line and an exit code."""

import signal
import sys
from types import FrameType

import typer

from lowtide.cli import (
    analysis,
    animate,
    bench,
    case,
    doctor,
    fit,
    frontier,
    largest,
    policies,
    predictions,
    profile,
    report,
    schedule,
    sweep,
    train,
)
from lowtide.errors import LowtideError
from lowtide.planning.policies import BudgetInfeasible

app = typer.Typer(
    name="lowtide",
    help="PyTorch training that fits a number of bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("profile")(profile.profile)
app.command("train")(train.train)
app.command("fit")(fit.fit)
app.command("doctor")(doctor.doctor)
app.command("schedule")(schedule.schedule)
app.command("frontier")(frontier.frontier)
app.command("sweep")(sweep.sweep)
app.command("largest")(largest.largest)
app.command("policies")(policies.policies)
app.command("predictions")(predictions.predictions)
app.command("analysis")(analysis.analysis)
app.command("case", hidden=True)(case.case)
app.command("report")(report.report)
app.add_typer(animate.app, name="animate")
app.add_typer(bench.app, name="bench")


@app.callback()
def _root() -> None:
    """PyTorch training that fits a number of bytes."""


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave through the clean-up of temporary files, as Ctrl-C does."""
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; a LowtideError becomes one line on stderr: exit code 3 for a budget, 2 for the rest."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        app()
    except BudgetInfeasible as infeasible:
        sys.stderr.write(f"lowtide: {infeasible}\n")
        sys.exit(3)
    except LowtideError as error:  # where no line of the user's is to blame, the place is empty
        sys.stderr.write(f"lowtide: {str(error).removeprefix(': ')}\n")
        sys.exit(2)
