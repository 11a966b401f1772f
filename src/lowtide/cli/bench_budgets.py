"""`lowtide bench budgets`: what budgets cost, measured against eager and captured steps in turn."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Left, PolicyName, Rounds, TimeLimit, Warmup, parse_shares
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.extras import need
from lowtide.files import results

NAMES = ("budgets.json", "budgets.csv", "budgets.png")


@grouped()
def budgets(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 8,
    left: Left = "75,50,35,20,12",
    rounds: Rounds = 5,
    warmup: Warmup = 2,
    policy: PolicyName = "optimal",
    time_limit: TimeLimit = 60.0,
    force: Force = False,
) -> None:
    """Plan one training step for several budgets and measure them all, beside eager and captured steps."""
    need("reports", "lowtide bench budgets")
    shares = parse_shares(left)
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("bench budgets") as say,
    ):
        say("build and capture")
        from lowtide.experiments.budgets.report import budgets_table, draw_budgets, write_budgets_csv
        from lowtide.experiments.budgets.run import compare_budgets
        from lowtide.experiments.measure_plans import captured

        training = chosen.build(batch_size)
        name, graph, eager_loss = captured(training, chosen.make_optimizer(training))
        found = compare_budgets(
            graph,
            eager_loss,
            shares,
            name=name,
            policy=policy,
            rounds=rounds,
            warmup=warmup,
            time_limit=time_limit,
            say=say,
        )
        found.save(folder / NAMES[0])
        write_budgets_csv(found, folder / NAMES[1])
        draw_budgets(found, folder / NAMES[2])
    console = wide_console()
    console.print(budgets_table(found))
    tell_written(console, out, NAMES)
