"""`lowtide train`: train inside a byte budget, and show what that changed."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import (
    BatchSize,
    Chosen,
    Force,
    PlanningTime,
    PolicyName,
    SwapDir,
    at_least,
    check_budget,
    output_file,
)
from lowtide.cli.output import tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results
from lowtide.pages.report.inputs import PLAN_NAME, RUN_NAME
from lowtide.units import format_bytes, parse_bytes

PNG_NAME, LANES_NAME = "memory.png", "lanes.png"

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES|60%",
        help="Device bytes at the peak of a step, parameters and optimizer state included: 4GiB, or a share of the "
        "unplanned peak. Without it the step is trained as it was captured.",
        callback=check_budget,
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="Train eagerly beside it, step by step; compare every bit.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Cap the process for real, before the model is built. On CPU all private memory of the process counts "
        "(VmData): Python and its libraries, some 350 MB, and the batch and model too. On CUDA: torch's allocator.",
    ),
]
Accumulate = Annotated[int, typer.Option(metavar="K", help="The parameters move at every K-th step.")]
Clip = Annotated[float | None, typer.Option(metavar="X", help="Clip the norm of all gradients to this.")]
Swap = Annotated[
    str,
    typer.Option(
        metavar="off|disk|host|auto",
        help="Let values leave the device where that is cheaper than making them again: disk for models on the CPU, "
        "pinned host memory for those on a GPU, auto for whichever fits. Needs --budget or --plan.",
    ),
]
PlanFrom = Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="Use a plan that --save-plan wrote.")]
SavePlan = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plan, for --plan.")]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--nproc", metavar="N", help="Train on so many processes here (CPU, gloo), each with a batch of its own."
    ),
]
Parallel = Annotated[
    str | None,
    typer.Option(metavar="ddp|fsdp", help="How --nproc spreads the model: copies of it as DDP, or shards as FSDP2."),
]


@grouped()
def train(
    chosen: Chosen,
    batch_size: BatchSize = 8,
    steps: Annotated[int, typer.Option(metavar="K", help="Training steps.", callback=at_least(1))] = 5,
    budget: Budget = None,
    policy: PolicyName = "optimal",
    compare: Compare = False,
    memory_limit: MemoryLimit = None,
    accumulate: Accumulate = 1,
    clip_grad_norm: Clip = None,
    swap: Swap = "off",
    swap_dir: SwapDir = None,
    plan: PlanFrom = None,
    save_plan: SavePlan = None,
    time_limit: PlanningTime = None,
    nproc: Ranks = None,
    parallel: Parallel = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help=f"Folder for {RUN_NAME}, {PNG_NAME} and {PLAN_NAME}; with --nproc {LANES_NAME} too."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Train a model on one synthetic batch inside a byte budget.

    Exit code 1 where --compare found a difference, 3 where the budget cannot be met, 2 where the input is wrong or
    memory ran out.
    """
    _check(budget, plan, save_plan, time_limit, force=force)
    if (nproc is None) != (parallel is None):
        raise InputError("--nproc and --parallel belong together: write --nproc 2 --parallel ddp, or fsdp")
    if nproc is not None and nproc < 2:
        raise InputError(f"--nproc must be at least 2, not {nproc}: leave both out for one process")
    if swap != "off" and budget is None and plan is None:
        raise InputError("--swap is for plans, and without --budget nothing is planned: give one")
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    planned = budget is not None or plan is not None
    if planned and out is not None:
        need("reports", f"the picture {PNG_NAME} of --out")
    written: tuple[str, ...] = (RUN_NAME, PNG_NAME, PLAN_NAME, *((LANES_NAME,) if nproc else ()))
    others = tuple(rank_name(rank) for rank in range(1, nproc or 1))
    names = (*(written if planned else written[:1]), *others)
    console = wide_console()
    advice = _advice(limit, planned=planned, compare=compare)
    with (
        nullcontext() if out is None else results(out, names, force=force) as folder,
        resources_suffice(batch_size, advice),
    ):
        # torch takes a while to import: not before the options are known to be right.
        from lowtide.cli.train_loop import Wanted, train_loop, write_results
        from lowtide.device.limit import limit_memory, usual_device
        from lowtide.experiments.rank_training import find_way
        from lowtide.reporting.training_table import ranks_table, training_table

        wanted = Wanted(
            steps,
            chosen.seed,
            accumulate,
            clip_grad_norm,
            budget,
            policy,
            plan,
            time_limit,
            compare,
            limit,
            swap,
            swap_dir,
        )
        if nproc is not None and parallel is not None:
            way = find_way(parallel)
            from lowtide.cli.train_ranks import Shared, train_on_ranks

            runs = train_on_ranks(nproc, Shared(chosen, batch_size, wanted, way, advice, folder, written, save_plan))
            for rank, run in enumerate(runs):
                if folder is not None and rank:
                    run.save(folder / rank_name(rank))
        else:
            device = usual_device()
            if limit is not None:
                limit_memory(limit, device)
            training = chosen.build(batch_size)
            made = chosen.make_optimizer(training)
            found = next(training.model.parameters()).device.type
            if limit is not None and found != device:
                limit_memory(limit, found)
            run, step = train_loop(training, made, wanted, console)
            write_results(run, step, folder, written, save_plan)
            runs = [run]
    console.print(training_table(runs[0]))
    if len(runs) > 1:
        console.print(ranks_table(runs))
    if out is not None:
        tell_written(console, out, names)
    if any(run.difference is not None for run in runs):
        raise typer.Exit(1)


def rank_name(rank: int) -> str:
    """The file of another rank than the first, which has the usual name."""
    return f"training-rank{rank}.json"


def _check(
    budget: str | None, plan: Path | None, save_plan: Path | None, time_limit: float | None, *, force: bool
) -> None:
    """Refuse before the long work."""
    if budget is not None and plan is not None:
        raise InputError("--plan has a budget of its own: leave out --budget, or plan anew without --plan")
    if budget is None and plan is None and (save_plan is not None or time_limit is not None):
        option = "--save-plan" if save_plan is not None else "--time-limit"
        raise InputError(f"{option} is for planning, and without --budget nothing is planned: give one")
    if save_plan is not None:
        output_file(save_plan, force=force)


def _advice(limit: int | None, *, planned: bool, compare: bool) -> str:
    """What to do when memory runs out."""
    under = "" if limit is None else f"the process is limited to {format_bytes(limit)}; "
    if compare:
        return f"{under}--compare trains an eager copy beside it, leave it out, or try a smaller batch"
    if planned:
        return f"{under}give a smaller --budget, or try a smaller batch"
    return f"{under}give --budget to train in less memory, or try a smaller batch"
