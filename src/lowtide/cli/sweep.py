"""`lowtide sweep`: peak and latency against batch size, with and without a plan."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import Chosen, PlanningTime, PolicyName, Warmup, at_least
from lowtide.cli.output import tell_written, wide_console
from lowtide.cli.work_bar import WorkBar, work_bar
from lowtide.errors import InputError, shown
from lowtide.experiments.case import CaseSettings, source_hash
from lowtide.experiments.machine import this_machine
from lowtide.experiments.pair import work_of
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.experiments.sweep.run import both, finished, run_size
from lowtide.extras import need
from lowtide.files import results
from lowtide.units import parse_bytes

NAMES = ("sweep.csv", "sweep.json", "peak_memory_vs_batch_size.png", "latency_vs_batch_size.png")

BatchSizes = Annotated[str, typer.Option(metavar="N,N,...", help="Samples in the batch, one case each.")]
Budget = Annotated[
    str,
    typer.Option(
        metavar="BYTES|60%[,...]",
        help="Of the planned cases: 4GiB, or a share of the unplanned peak. One for all, or one for each batch size: "
        "where the batch is small, parameters and optimizer state alone may be more than 60%.",
    ),
]


@grouped()
def sweep(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)} and the cases.")],
    batch_sizes: BatchSizes = "4,8,16,32,64",
    budget: Budget = "60%",
    steps: Annotated[int, typer.Option(metavar="K", help="Measured steps of each case.", callback=at_least(1))] = 3,
    warmup: Warmup = 2,
    op_runs: Annotated[
        int, typer.Option(help="Op-by-op runs after them, which say where the time goes.", callback=at_least(1))
    ] = 2,
    policy: PolicyName = "optimal",
    time_limit: PlanningTime = None,
    force: Annotated[bool, typer.Option("--force", help="Measure anew what is there already.")] = False,
) -> None:
    """Train at several batch sizes with and without a plan, step by step in turn, each case in its own process.

    Interrupted, it goes on where it was when started again with the same options. A case that runs out of memory or
    whose budget cannot be met is a result; the others are still run.
    """
    need("reports", "lowtide sweep")
    sizes = parse_batch_sizes(batch_sizes)
    budgets = _budgets(budget, sizes)
    first = CaseSettings(
        source=source_hash(chosen.model),
        batch_size=sizes[0],
        planned=True,
        budget=budgets[0],
        policy=policy,
        time_limit=time_limit,
        steps=steps,
        warmup=warmup,
        op_runs=op_runs,
        memory_limit_B=None,
        machine=this_machine(),
        **asdict(chosen),
    )
    wanted = [replace(first, batch_size=size, budget=each) for size, each in zip(sizes, budgets, strict=True)]
    known = {} if force else finished(out, wanted)
    # The results of equal settings may be replaced: they come from the same cases.
    with results(out, NAMES, force=force or bool(known)) as folder, work_bar("sweep") as bar:
        pairs = _measure(out, wanted, known, bar)
        found = Sweep(pairs[0].plain.model, budget, first.machine, tuple(pairs))
        from lowtide.experiments.sweep.latency import draw_latency
        from lowtide.experiments.sweep.peaks import draw_peaks
        from lowtide.experiments.sweep.report import sweep_table, write_sweep_csv

        write_sweep_csv(found, folder / NAMES[0])
        found.save(folder / NAMES[1])
        draw_peaks(found, folder / NAMES[2])
        draw_latency(found, folder / NAMES[3])
    console = wide_console()
    console.print(sweep_table(found))
    tell_written(console, out, NAMES)


def _measure(out: Path, wanted: list[CaseSettings], known: dict[int, Pair], bar: WorkBar) -> list[Pair]:
    """All batch sizes, those that are known already not again."""
    missing = [settings for settings in wanted if settings.batch_size not in known]
    if known:
        bar.say(f"measured before, not run again: batch size {', '.join(map(str, known))}")
    bar.expect(sum(_weight(settings) * sum(map(work_of, both(settings))) for settings in missing))
    for settings in missing:
        size = settings.batch_size

        def tell(what: str, work: float, settings: CaseSettings = settings) -> None:
            bar.did(f"batch size {settings.batch_size}: {what}", work * _weight(settings))

        known[size] = run_size(out, settings, tell)
        said = f"with a plan {known[size].planned.outcome}, without {known[size].plain.outcome}"
        bar.say(f"batch size {size}: {said}; {bar.left}")
    return [known[settings.batch_size] for settings in wanted]


def _budgets(text: str, sizes: list[int]) -> list[str]:
    """One for each batch size."""
    budgets = [word.strip() for word in text.split(",")]
    for budget in budgets:
        parse_bytes(budget, whole=1)
    if len(budgets) not in (1, len(sizes)):
        raise InputError(
            f"--budget takes one budget, or one for each of the {len(sizes)} batch sizes, not {shown(text)}"
        )
    return budgets * len(sizes) if len(budgets) == 1 else budgets


def _weight(settings: CaseSettings) -> float:
    """A step's time grows with the batch, from a little for the parameters."""
    return settings.batch_size + 2.0


def parse_batch_sizes(text: str) -> list[int]:
    """`4,8` as 4 and 8."""
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"--batch-sizes takes whole numbers such as 4,8,16, not {shown(text)}") from None
    if not all(0 < size < 2**31 for size in sizes) or len(set(sizes)) < len(sizes):
        raise InputError(f"--batch-sizes takes different numbers from 1 up and below 2**31, not {shown(text)}")
    return sizes
