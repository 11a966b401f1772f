"""`lowtide bench swap`: recompute only, swap only and both, at several budgets, measured in turn."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Left, Rounds, SwapDir, TimeLimit, Warmup, parse_shares
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.extras import need
from lowtide.files import results

NAMES = ("swap.json", "swap.csv", "swap.png")


@grouped()
def swap(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 8,
    left: Left = "75,50,35,20",
    rounds: Rounds = 5,
    warmup: Warmup = 2,
    swap_dir: SwapDir = None,
    time_limit: TimeLimit = 60.0,
    force: Force = False,
) -> None:
    """Plan one training step for several budgets without swaps, with swaps alone and with both; measure all in turn."""
    need("reports", "lowtide bench swap")
    shares = parse_shares(left)
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("bench swap") as say,
    ):
        say("build and capture")
        from lowtide.experiments.measure_plans import captured
        from lowtide.experiments.swap.report import draw_swap, swap_table, write_swap_csv
        from lowtide.experiments.swap.run import compare_swapping
        from lowtide.training.swap_use import SwapUse

        training = chosen.build(batch_size)
        name, graph, eager_loss = captured(training, chosen.make_optimizer(training))
        use = SwapUse("auto", swap_dir)
        try:
            found = compare_swapping(
                graph,
                eager_loss,
                shares,
                use,
                name=name,
                rounds=rounds,
                warmup=warmup,
                time_limit=time_limit,
                say=say,
            )
        finally:
            use.close()
        found.save(folder / NAMES[0])
        write_swap_csv(found, folder / NAMES[1])
        draw_swap(found, folder / NAMES[2])
    console = wide_console()
    console.print(swap_table(found))
    tell_written(console, out, NAMES)
