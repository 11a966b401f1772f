"""`lowtide bench capture`: captured steps against eager ones, step by step in turn."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lowtide.cli.options import BatchSize, Force, Model, OptimizerName
from lowtide.cli.progress import progress_line
from lowtide.errors import InputError
from lowtide.experiments.capture.record import Comparison
from lowtide.files import results
from lowtide.units import format_bytes, format_ms


def capture(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")],
    steps: Annotated[int, typer.Option(help="Measured steps of each kind.")] = 10,
    warmup: Annotated[int, typer.Option(help="Steps of each kind that are thrown away.")] = 2,
    optimizer: OptimizerName = "adam",
    force: Force = False,
) -> None:
    """Peak and time of the captured step beside eager training, and of its ops one by one."""
    if steps < 1 or warmup < 1:
        raise InputError(f"--steps and --warmup must be at least 1, not {steps} and {warmup}")
    name = f"capture_{''.join(c if c.isalnum() or c in '-_' else '_' for c in model)}.json"
    with results(out, (name,), force=force) as folder, progress_line("bench capture") as say:
        say("build and capture")
        import lowtide
        from lowtide.experiments.capture.run import against_eager
        from lowtide.models import build, make_optimizer
        from lowtide.tracing.loss import model_loss

        training = build(model, batch_size)
        loss = training.loss or model_loss
        made = make_optimizer(optimizer, training.model, 1e-3)
        graph = lowtide.capture(training.model, made, training.batch, training.loss)
        comparison = against_eager(
            graph,
            lambda: loss(training.model, training.batch),
            name=training.name,
            steps=steps,
            warmup=warmup,
            progress=lambda done, total, what: say(f"{what}, {done} of {total}"),
        )
        comparison.save(folder / name)
    Console().print(_table(comparison))


def _table(found: Comparison) -> Table:
    low, *_, high = sorted([*found.ratios, *found.ratios])
    table = Table("", "eager", "captured", "difference", title=f"{found.model}, {found.optimizer}", box=None)
    peak = found.captured_peak_B / found.eager_peak_B - 1
    table.add_row("peak", format_bytes(found.eager_peak_B), format_bytes(found.captured_peak_B), f"{peak:+.3%}")
    eager, ours = sorted(found.eager_ms), sorted(found.captured_ms)
    table.add_row(
        "step",
        format_ms(eager[len(eager) // 2]),
        format_ms(ours[len(ours) // 2]),
        f"{found.overhead:+.1%} (median of {len(ours)} neighbouring pairs, {low - 1:+.1%} to {high - 1:+.1%})",
    )
    table.add_row("", "plain run", "op by op", "")
    table.add_row(
        "peak", format_bytes(found.captured_peak_B), format_bytes(found.op_peak_B),
        f"{found.op_peak_B / found.captured_peak_B - 1:+.3%}",
    )  # fmt: skip
    table.add_row(
        "step", format_ms(found.plain_ms), format_ms(found.op_sum_ms), f"{found.op_sum_ms / found.plain_ms - 1:+.1%}"
    )
    return table
