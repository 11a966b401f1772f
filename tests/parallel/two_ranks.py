"""Runs a function in two processes of gloo, and says what each of them did."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

WIDTH, ROWS = 31, 64
_BF16 = torch.bfloat16
PLAIN = MixedPrecisionPolicy()
POLICIES = {
    "fsdp": PLAIN,
    "hsdp": PLAIN,
    "bf16, summed in fp32": MixedPrecisionPolicy(_BF16, torch.float32, output_dtype=torch.float32),
    "bf16": MixedPrecisionPolicy(_BF16),
    "summed in bf16": MixedPrecisionPolicy(None, _BF16),
    "bf16, not cast": MixedPrecisionPolicy(_BF16, torch.float32, output_dtype=_BF16, cast_forward_inputs=False),
    "fp16": MixedPrecisionPolicy(torch.float16),
}


def on_two(work: Callable[..., Any], folder: Path, *given: Any, world: int = 2) -> list[str]:
    """What `work(rank, *given)` returned on each rank, or how it failed; nobody's word where it was killed."""
    processes = [
        multiprocessing.get_context("spawn").Process(target=_run, args=(work, rank, world, str(folder), given))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    said = [folder / f"said{rank}" for rank in range(world)]
    return [path.read_text(encoding="utf-8") if path.exists() else "" for path in said]


def _run(work: Callable[..., Any], rank: int, world: int, folder: str, given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        said = str(work(rank, *given))
    except Exception as error:  # noqa: BLE001 - the test reads it
        said = f"{type(error).__name__}: {error}" if "lowtide" in type(error).__module__ else traceback.format_exc()
    Path(f"{folder}/said{rank}").write_text(said, encoding="utf-8")


def model_of(kind: str) -> tuple[nn.Module, Optimizer]:
    """Blocks with dropout and BatchNorm, whose rows two ranks cannot share evenly, spread as `kind` says.

    In lower precision LayerNorm takes the place of BatchNorm, which torch does not run there.
    """
    torch.manual_seed(0)
    norm = nn.BatchNorm1d if POLICIES.get(kind, PLAIN).param_dtype is None else nn.LayerNorm
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), norm(WIDTH), nn.Dropout(0.1)) for _ in "1234"]
    model: nn.Module = nn.Sequential(*blocks, nn.Linear(WIDTH, 10))
    if kind == "ddp":
        model = DistributedDataParallel(model)
    elif kind in POLICIES:
        sizes = (2, distributed.get_world_size() // 2) if kind == "hsdp" else (distributed.get_world_size(),)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :])
        policy = POLICIES[kind]
        for block in model.children():
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=replace(policy, cast_forward_inputs=True))
    return model, torch.optim.AdamW(model.parameters(), 1e-2)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batches(rank: int, count: int, rows: int = ROWS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each rank has its own."""
    generator = torch.Generator().manual_seed(10 + rank)
    return [
        (torch.randn(rows, WIDTH, generator=generator), torch.randint(0, 10, (rows,), generator=generator))
        for _ in range(count)
    ]
