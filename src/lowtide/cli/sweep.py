"""`lowtide sweep`: peak and latency against batch size, with and without a plan."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import (
    Dropout,
    ImageSize,
    LearningRate,
    Model,
    ModelSeed,
    OptimizerName,
    PolicyName,
    SeqLen,
    check_time_limit,
)
from lowtide.cli.output import tell_written, wide_console
from lowtide.cli.work_bar import WorkBar, work_bar
from lowtide.errors import InputError
from lowtide.experiments.machine import this_machine
from lowtide.experiments.pair import work_of
from lowtide.experiments.source import source_hash
from lowtide.experiments.sweep import finished, run_size, settings_of
from lowtide.files import results
from lowtide.planning.policies import policy as find_policy
from lowtide.records.case import CaseSettings
from lowtide.records.sweep import Pair, Sweep
from lowtide.units import parse_bytes

NAMES = ("sweep.csv", "sweep.json", "peak_memory_vs_batch_size.png", "latency_vs_batch_size.png")

BatchSizes = Annotated[str, typer.Option(metavar="N,N,...", help="Samples in the batch, one case each.")]
Budget = Annotated[
    str, typer.Option(metavar="BYTES|60%", help="Of the planned cases: 4GiB, or a share of the unplanned peak.")
]
PlanningTime = Annotated[
    float | None, typer.Option(metavar="S", help="Seconds of planning at most; about three steps where left out.")
]


def sweep(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)} and the cases.")],
    batch_sizes: BatchSizes = "4,8,16,32,64",
    budget: Budget = "60%",
    steps: Annotated[int, typer.Option(metavar="K", help="Measured steps of each case.")] = 3,
    warmup: Annotated[int, typer.Option(help="Steps before them that are thrown away.")] = 1,
    op_runs: Annotated[int, typer.Option(help="Op-by-op runs after them, which say where the time goes.")] = 2,
    policy: PolicyName = "optimal",
    time_limit: PlanningTime = None,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    force: Annotated[bool, typer.Option("--force", help="Measure anew what is there already.")] = False,
) -> None:
    """Train at several batch sizes with and without a plan, step by step in turn, each case in its own process.

    Interrupted, it goes on where it was when started again with the same options. A case that runs out of memory or
    whose budget cannot be met is a result; the others are still run.
    """
    sizes = parse_batch_sizes(batch_sizes)
    _check(steps, warmup, op_runs, budget, policy, time_limit)
    first = CaseSettings(
        model=model,
        source=source_hash(model),
        batch_size=sizes[0],
        planned=True,
        budget=budget,
        policy=policy,
        time_limit=time_limit,
        steps=steps,
        warmup=warmup,
        op_runs=op_runs,
        image_size=image_size,
        seq_len=seq_len,
        dropout=dropout,
        optimizer=optimizer,
        lr=lr,
        seed=seed,
        memory_limit_B=None,
        machine=this_machine(),
    )
    known = {} if force else finished(out, first, sizes)
    # The results of equal settings may be replaced: they come from the same cases.
    with results(out, NAMES, force=force or bool(known)) as folder, work_bar("sweep") as bar:
        pairs = _measure(out, first, sizes, known, bar)
        found = Sweep(pairs[0].plain.model, budget, first.machine, tuple(pairs))
        from lowtide.reporting.latency_vs_batch import draw_latency
        from lowtide.reporting.peak_vs_batch import draw_peaks
        from lowtide.reporting.sweep_table import sweep_table, write_sweep_csv

        write_sweep_csv(found, folder / NAMES[0])
        found.save(folder / NAMES[1])
        draw_peaks(found, folder / NAMES[2])
        draw_latency(found, folder / NAMES[3])
    console = wide_console()
    console.print(sweep_table(found))
    tell_written(console, out, NAMES)


def _measure(out: Path, first: CaseSettings, sizes: list[int], known: dict[int, Pair], bar: WorkBar) -> list[Pair]:
    """All batch sizes, those that are known already not again."""
    missing = [size for size in sizes if size not in known]
    if known:
        bar.say(f"measured before, not run again: batch size {', '.join(map(str, known))}")
    bar.expect(sum(_weight(size) * sum(map(work_of, settings_of(first, size))) for size in missing))
    pairs = []
    for size in sizes:
        if size not in known:

            def tell(what: str, work: float, size: int = size) -> None:
                bar.did(f"batch size {size}: {what}", work * _weight(size))

            known[size] = run_size(out, first, size, tell)
            said = f"with a plan {known[size].planned.outcome}, without {known[size].plain.outcome}"
            bar.say(f"batch size {size}: {said}; {bar.left}")
        pairs.append(known[size])
    return pairs


def _weight(batch_size: int) -> float:
    """A step's time grows with the batch, from a little for the parameters."""
    return batch_size + 2.0


def parse_batch_sizes(text: str) -> list[int]:
    """`4,8` as 4 and 8."""
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"--batch-sizes takes whole numbers such as 4,8,16, not {text!r}") from None
    if not all(0 < size < 2**31 for size in sizes) or len(set(sizes)) < len(sizes):
        raise InputError(f"--batch-sizes takes different numbers from 1 up and below 2**31, not {text!r}")
    return sizes


def _check(steps: int, warmup: int, op_runs: int, budget: str, policy: str, time_limit: float | None) -> None:
    """Refuse before the long work."""
    if steps < 1 or warmup < 1 or op_runs < 1:
        raise InputError(f"--steps, --warmup and --op-runs must be at least 1, not {steps}, {warmup} and {op_runs}")
    parse_bytes(budget, whole=1)
    find_policy(policy)
    if time_limit is not None:
        check_time_limit(time_limit)
