"""`lowtide fit`: will it fit on that device? Nothing is downloaded, allocated or run."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, check_budget, check_time_limit
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.errors import InputError, shortened
from lowtide.extras import need
from lowtide.files import results

if TYPE_CHECKING:
    from lowtide.fitting.devices import Device
    from lowtide.fitting.record import Fit
    from lowtide.fitting.sketch import Sketch

DTYPES = ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")
STRETCH = 256
"""Tokens: the longest sample is looked for in stretches of so many."""


def _check_dtype(name: str | None) -> str | None:
    if name is not None and name not in DTYPES:
        raise InputError(f"--dtype must be one of {', '.join(DTYPES)}, not {name!r}")
    return name


def _check_budgets(budgets: str | None) -> str | None:
    for budget in [] if budgets is None else budgets.split(","):
        check_budget(budget.strip())
    return budgets


def _key(device: str, room: str | None) -> str:
    """Name of a device's files."""
    name = device if room is None else f"{device}-{room.replace('%', '-percent')}"
    return name.replace(" ", "-")


@grouped(optimizer="adamw")
def fit(
    chosen: Chosen,
    device: Annotated[
        str | None, typer.Option(help="h100, a100-80, rtx4090 ..., 'this machine', or a .json file.")
    ] = None,
    compare: Annotated[str | None, typer.Option(help="Several of them with commas, in one table.")] = None,
    batch_size: BatchSize = 1,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Of weights and batch: fp32, bf16, fp16; amp-bf16, amp-fp16: autocast; as built without.",
            callback=_check_dtype,
        ),
    ] = None,
    world: Annotated[int, typer.Option(help="Over so many devices; the batch is that of each.")] = 1,
    parallel: Annotated[str, typer.Option(help="How they share the work: fsdp, hsdp, ddp, tp or fsdp+tp.")] = "fsdp",
    tp: Annotated[int | None, typer.Option(help="With fsdp+tp: so many share each layer.")] = None,
    checkpoint: Annotated[
        str, typer.Option(help="Without a plan: none, or per block selective (as torchtitan) or full checkpointing.")
    ] = "none",
    sequence: Annotated[
        bool, typer.Option("--sequence-parallel", help="With tp and fsdp+tp: the tokens between layers are shared too.")
    ] = False,
    compiled: Annotated[
        str, typer.Option("--compile", help="What torch.compile takes: none, blocks (as torchtitan) or model.")
    ] = "none",
    accumulate: Annotated[
        int | None,
        typer.Option(min=1, help="Batches for one update; with 1, gradients stay between steps as well."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Bytes for the step instead of all that the device has; several with commas.", callback=_check_budgets
        ),
    ] = None,
    largest: Annotated[
        str | None, typer.Option(help="Also find the largest: batch or length; takes some minutes.")
    ] = None,
    needed: Annotated[bool, typer.Option("--needed", help="Also find the fewest devices; takes minutes.")] = False,
    time_limit: Annotated[
        float,
        typer.Option(metavar="S", help="Work of a plan, in seconds of an idle machine.", callback=check_time_limit),
    ] = 30.0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for fit.html, and for each device the record and the memory curve.")
    ] = None,
    timings: Annotated[bool, typer.Option("--timings", help="Also say where the time of finding out went.")] = False,
    force: Force = False,
) -> None:
    """Say whether a training step fits a device, as it is and with a plan, before the device is there."""
    if largest not in (None, "batch", "length"):
        raise InputError(f"--largest must be batch or length, not {largest!r}")
    if largest == "length" and ":" in chosen.model:
        raise InputError(f"--largest length does not apply to {chosen.model}, whose function decides all sizes")
    names = [name.strip() for text in (device, compare) if text for name in text.split(",")]
    if not names:
        raise InputError("which device? write --device h100, or --compare h100,a100-40,rtx4090 for several")
    if out is not None:
        need("reports", "lowtide fit --out")
    import torch

    from lowtide.fitting import limits
    from lowtide.fitting.devices import find_device
    from lowtide.fitting.dtypes import in_dtype
    from lowtide.fitting.fit import CAPTURE, Setting, judge, limit_of
    from lowtide.fitting.report import draw, table
    from lowtide.fitting.report import timings as timings_of
    from lowtide.fitting.sketch import sketch
    from lowtide.training.pipeline import StageTimes

    if (tp is None) == (parallel == "fsdp+tp"):
        raise InputError("--parallel fsdp+tp needs --tp N, so many devices that share each layer; no other takes --tp")
    setting = Setting(world, parallel, checkpoint, tp or 1, compiled, sequence, accumulate or 0)
    if needed and parallel == "tp":
        raise InputError("--needed does not apply to --parallel tp, which fixes how many devices share a layer")
    devices = [find_device(name) for name in dict.fromkeys(names)]
    rooms = [None] if budget is None else [room.strip() for room in budget.split(",")]
    for found in devices:
        for room in rooms:
            limit_of(found, room, 1)
    called: list[str] = []
    known: dict[tuple[int, int | None, bool], Sketch] = {}

    def drawn(found: "Device", samples: int, length: int | None) -> "Sketch":
        """Captured once for all devices of a kind."""
        case = (samples, length, found.gpu)
        if case not in known:
            known[case] = captured(found, samples, length)
        return known[case].on(found.rates)

    def captured(found: "Device", samples: int, length: int | None) -> "Sketch":
        try:
            with torch.device("meta"):
                training = replace(chosen, seq_len=length).build(samples)
        except (NotImplementedError, InputError) as error:
            if isinstance(error, InputError) and " meta " not in str(error):
                raise
            why = shortened(str(error), 300)
            raise InputError(
                f"{chosen.model} cannot be built without data ({why}): leave out what reads values"
            ) from None
        training = in_dtype(training, dtype)
        called.append(training.name)
        return sketch(
            training.model,
            lambda m: chosen.make_optimizer(replace(training, model=m)),
            training.batch,
            training.loss,
            found.rates,
            gpu=found.gpu,
            tensor=setting.sharing,
            sequence=setting.sequence,
        )

    def with_largest(result: "Fit", found: "Device") -> "Fit":
        limit = result.budget_B
        if largest == "batch":
            most = limits.largest(
                lambda units: drawn(found, units, chosen.seq_len), found, limit, setting, time_limit=time_limit
            )
            return replace(result, largest_batch=most)
        most = limits.largest(
            lambda units: drawn(found, batch_size, STRETCH * units), found, limit, setting, time_limit=time_limit
        )
        most = replace(most, as_it_is=STRETCH * (most.as_it_is or 0), planned=STRETCH * (most.planned or 0))
        return replace(result, largest_length=most)

    fits = []
    cases = [(found, room) for found in devices for room in rooms]
    keys = [_key(found.key, room if len(rooms) > 1 else None) for found, room in cases]
    files = ("fit.html", *(f"{key}.{kind}" for key in keys for kind in ("json", "png")))
    console = wide_console()
    with nullcontext() if out is None else results(out, files, force=force) as folder:
        with progress_line(f"fit {chosen.model}") as say:
            for found, room in cases:
                say(f"{found.name}: capture")
                times = StageTimes()
                step = drawn(found, batch_size, chosen.seq_len)
                times.note(CAPTURE)
                say(f"{found.name}: plan")
                result = judge(step, found, room, setting, time_limit=time_limit, times=times)
                result = replace(result, model=called[0])
                if largest is not None:
                    say(f"{found.name}: the largest {largest}")
                    result = with_largest(result, found)
                if needed:
                    say(f"{found.name}: the fewest devices")
                    fewest = limits.devices_needed(step, found, result.budget_B, setting, time_limit=time_limit)
                    result = replace(result, devices_needed=fewest)
                fits.append(result)
        console.print(table(fits))
        if timings:
            console.print(timings_of(fits))
        if folder is not None:
            from lowtide.pages.fit.page import write_page

            for key, result in zip(keys, fits, strict=True):
                result.save(folder / f"{key}.json")
                draw(result, folder / f"{key}.png")
            write_page(fits, [folder / f"{key}.png" for key in keys], folder / "fit.html")
    if out is not None:
        tell_written(console, out, files)
    if not any(result.trains for result in fits):
        Console(stderr=True).print("It fits nowhere: take fewer samples, a shorter length or a larger device.")
        raise typer.Exit(1)
