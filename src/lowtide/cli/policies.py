"""`lowtide policies`: every policy from slack to the floor, measured beside each other."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Rounds, TimeLimit, Warmup, at_least
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results, write_text
from lowtide.planning.policies import policy as find_policy

NAMES = ("policies.json", "policies.csv", "policies.png", "tightest_plan.txt")


@grouped()
def policies(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 8,
    names: Annotated[str, typer.Option("--policies", metavar="P,P,...")] = "keep_all,chen,mutwo,optimal",
    points: Annotated[
        int, typer.Option(metavar="N", help="Budgets from slack to the floor, closer near it.", callback=at_least(2))
    ] = 6,
    rounds: Rounds = 3,
    warmup: Warmup = 2,
    slowest: Annotated[
        float, typer.Option(metavar="N", help="A plan predicted to take more than N captured steps is not run.")
    ] = 10.0,
    time_limit: TimeLimit = 30.0,
    force: Force = False,
) -> None:
    """Plan one training step by every policy, for budgets from slack to the floor, and measure all plans in turn."""
    need("reports", "lowtide policies")
    wanted = names.split(",")
    for name in wanted:
        find_policy(name)
    if not slowest >= 1:
        raise InputError(f"--slowest must be at least 1, not {slowest:g}: the captured step itself takes one")
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("policies") as say,
    ):
        say("build and capture")
        from lowtide.experiments.measure_plans import captured
        from lowtide.experiments.policies.report import draw_policies, policies_table, write_policies_csv
        from lowtide.experiments.policies.run import compare_policies
        from lowtide.reporting.explain import explain

        training = chosen.build(batch_size)
        name, graph, eager_loss = captured(training, chosen.make_optimizer(training))
        found, tightest = compare_policies(
            graph,
            eager_loss,
            wanted,
            name=name,
            points=points,
            rounds=rounds,
            warmup=warmup,
            slowest=slowest,
            time_limit=time_limit,
            say=say,
        )
        found.save(folder / NAMES[0])
        write_policies_csv(found, folder / NAMES[1])
        draw_policies(found, folder / NAMES[2])
        write_text(folder / NAMES[3], "no plan was found\n" if tightest is None else explain(tightest))
    console = wide_console()
    console.print(policies_table(found))
    tell_written(console, out, NAMES)
