"""Problems of any size: identical blocks, to see how planning time grows, and random graphs that are no chain."""

import random

from lowtide.errors import InputError
from lowtide.planning.problem import Op, Problem, Storage

_KIB = 1024
# Forward ops of one residual block: name, time, output KiB. Each reads the one before it, `add` the block's input too.
_BLOCK = (
    ("conv1", 900, 256),
    ("norm1", 120, 256),
    ("relu1", 60, 256),
    ("conv2", 900, 256),
    ("norm2", 120, 256),
    ("add", 50, 256),
    ("relu2", 60, 256),
)
_WEIGHTS = {"conv1": 144, "norm1": 1, "conv2": 144, "norm2": 1}
OPS_PER_BLOCK = 2 * len(_BLOCK) + 2 * len(_WEIGHTS)
"""Forward, backward, and for each weight its gradient and its update."""


def repeated_blocks(blocks: int) -> Problem:
    """`blocks` residual blocks forward and backward, every weight updated as soon as its gradient exists."""
    if blocks < 1:
        raise InputError(f"a problem needs at least one block, not {blocks}")
    storages: list[Storage] = [Storage(256 * _KIB, resident=True, name="input")]
    ops: list[Op] = []

    def new(kib: int, name: str, *, resident: bool = False) -> int:
        storages.append(Storage(kib * _KIB, resident=resident, name=name))
        return len(storages) - 1

    forward: list[tuple[str, str, int, tuple[int, ...], int | None]] = []  # label, name, time, saved, weight
    value = 0
    for block in range(blocks):
        entry = value
        for name, time, kib in _BLOCK:
            label = f"block{block}.{name}"
            weight = new(_WEIGHTS[name], f"{label}.weight", resident=True) if name in _WEIGHTS else None
            out = new(kib, label)
            reads = (value, *((entry,) if name == "add" else ()), *(() if weight is None else (weight,)))
            ops.append(Op(label, time, reads, (out,), workspace=64 * _KIB if name.startswith("conv") else 0))
            saved: tuple[int, ...] = () if name == "add" else ((out,) if name.startswith("relu") else (value,))
            forward.append((label, name, time, saved, weight))
            value = out
    gradient = shortcut = value
    for label, name, time, saves, weight in reversed(forward):
        before, gradient = gradient, new(256, f"{label}.grad")
        shortcut = before if name == "add" else shortcut  # joins again where the block began
        reads = (before, *saves, *((shortcut,) if name == "conv1" else ()), *(() if weight is None else (weight,)))
        ops.append(Op(f"{label}.backward", time, reads, (gradient,)))
        if weight is not None:
            into = new(storages[weight].bytes // _KIB, f"{label}.weight.grad")
            ops.append(Op(f"{label}.weight_backward", time, (before, *saves), (into,)))
            ops.append(Op(f"{label}.update", 20, (into, weight), (), once=True))
    return Problem(f"blocks{blocks}", tuple(storages), tuple(ops))


def random_layers(count: int, *, seed: int) -> Problem:
    """`count` ops that read one to a few values made a little before, now and then long before, and no residents."""
    if count < 2:
        raise InputError(f"a problem needs at least two ops, not {count}")
    chance = random.Random(seed)
    reads: list[set[int]] = [set()]
    unread = {0}
    for k in range(1, count):
        wanted = 1 + min(6, int(chance.expovariate(0.8)))
        mine = {chance.randrange(k) if chance.random() < 0.08 else k - min(k, 1 + int(chance.expovariate(0.15)))}
        for _ in range(wanted - 1):
            mine.add(k - min(k, 1 + int(chance.expovariate(0.15))))
        mine |= unread if k == count - 1 else {s for s in unread if k - s > 12}
        unread = (unread - mine) | {k}
        reads.append(mine)
    storages = tuple(Storage(80 + 10 * int(chance.expovariate(1 / 190))) for _ in range(count))
    ops = tuple(Op(f"op{k}", chance.randrange(1000), tuple(sorted(reads[k])), (k,)) for k in range(count))
    return Problem(f"layers{count}.{seed}", storages, ops)
