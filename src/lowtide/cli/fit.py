"""`lowtide fit`: will it fit on that device? Nothing is downloaded, allocated or run."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lowtide.cli.options import BatchSize, Dropout, Force, ImageSize, LearningRate, OptimizerName, SeqLen
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.errors import InputError, shortened
from lowtide.extras import need
from lowtide.files import results

if TYPE_CHECKING:
    from lowtide.fitting.fit import Sketch
    from lowtide.profiling.estimate import Rates

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="mlp, resnet152, bert-base, gpt2, vit-base, unet, llama-3.1-8b, llama-3.1-70b, qwen2.5-7b, "
            "mistral-7b, gpt2-xl, vit-l, a config.json of transformers, or a function as for `lowtide profile`: "
            "path/to/file.py:function."
        ),
    ],
    device: Annotated[
        str, typer.Option(help="h100, a100-80, rtx4090 ..., 'this machine', or a .json file; several with commas.")
    ],
    batch_size: BatchSize = 1,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: fp32, bf16 or fp16.")] = "fp32",
    optimizer: OptimizerName = "adamw",
    lr: LearningRate = 1e-3,
    world: Annotated[int, typer.Option(help="Shard over so many devices (FSDP2); the batch is that of each.")] = 1,
    selective: Annotated[
        bool, typer.Option("--selective", help="With --world: as torchtitan's selective checkpointing, not as it is.")
    ] = False,
    budget: Annotated[str | None, typer.Option(help="Bytes for the step instead of all that the device has.")] = None,
    largest: Annotated[
        bool, typer.Option("--largest", help="Also find the largest batch; takes some minutes.")
    ] = False,
    time_limit: Annotated[
        float, typer.Option(metavar="S", help="Seconds of planning at most, for each device.")
    ] = 30.0,
    out: Annotated[Path | None, typer.Option(help="Folder for fit.json and fit.png, one pair for each device.")] = None,
    force: Force = False,
) -> None:
    """Say whether a training step fits a device, as it is and with a plan, before the device is there."""
    if dtype not in DTYPES:
        raise InputError(f"--dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if world < 1 or (largest and world > 1):
        raise InputError("--world must be at least 1, and --largest is for one device")
    if selective and world == 1:
        raise InputError("--selective is what people do with FSDP: it needs a --world of 2 or more")
    if out is not None:
        need("reports", "lowtide fit --out")
    import torch

    from lowtide.fitting.devices import find_device
    from lowtide.fitting.fit import judge, sketch
    from lowtide.fitting.fit import largest as find_largest
    from lowtide.fitting.report import draw, table
    from lowtide.models import ModelOptions, build, make_optimizer
    from lowtide.models.configurations import from_configuration, is_configuration

    devices = [find_device(name.strip()) for name in device.split(",")]
    options = ModelOptions(image_size, seq_len, dropout)

    def drawn(rates: "Rates", samples: int) -> "Sketch":
        make = from_configuration if is_configuration(model) else build
        try:
            with torch.device("meta"):
                training = make(model, samples, options)
        except NotImplementedError as error:
            raise InputError(
                f"{model} cannot be built without data ({shortened(str(error))}): leave out what reads values"
            ) from None
        training.model.to(getattr(torch, DTYPES[dtype]))
        names.append(training.name)
        return sketch(training.model, lambda m: make_optimizer(optimizer, m, lr), training.batch, training.loss, rates)

    names: list[str] = []
    fits, most = [], []
    keys = [found.key.replace(" ", "-") for found in devices]
    files = tuple(f"{key}.{kind}" for key in keys for kind in ("json", "png"))
    with progress_line(f"fit {model}") as say:
        for found in devices:
            say(f"{found.name}: capture")
            begin = perf_counter()
            step = drawn(found.rates, batch_size)
            captured = perf_counter() - begin
            say(f"{found.name}: plan")
            result = judge(
                step, found, budget, world=world, checkpointed=selective, time_limit=time_limit, captured=captured
            )
            fits.append(replace(result, model=names[-1]))
            if largest:
                say(f"{found.name}: the largest batch")
                most.append(find_largest(partial(drawn, found.rates), found, budget, time_limit=time_limit))
    console = wide_console()
    console.print(table(fits, most))
    if out is not None:
        with results(out, files, force=force) as folder:
            for key, result in zip(keys, fits, strict=True):
                result.save(folder / f"{key}.json")
                draw(result, folder / f"{key}.png")
        tell_written(console, out, files)
    if not any(result.trains for result in fits):
        Console(stderr=True).print("It fits nowhere: take fewer samples, a shorter length or a larger device.")
        raise typer.Exit(1)
