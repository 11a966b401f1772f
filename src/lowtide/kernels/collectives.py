"""Collectives as ops of a graph: parameters gathered from their shards, gradients reduced over the ranks.

An op is over when it returns; its start alone returns at once, and `finish` waits for what it began. They sum and
divide as DDP and FSDP2 do, in buffers laid out as theirs, through the same calls of torch.distributed: so the last bit
is the same. The process group is named by its name.
"""

import logging
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor, distributed
from torch._ops import OpOverload
from torch.distributed.distributed_c10d import GroupName, _resolve_process_group  # type: ignore[attr-defined]

from lowtide.errors import PeerLost

log = logging.getLogger(__name__)

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("gather(Tensor[] shards, int[] rows, int world, str group, *, ScalarType dtype) -> Tensor[]")
_library.define("all_reduce(Tensor[] gradients, int world, str group) -> Tensor")
_library.define(
    "reduce_scatter(Tensor[] gradients, int world, str group, *, ScalarType by, ScalarType dtype, str? replicas=None)"
    " -> Tensor"
)


def with_all(group: str, run: Callable[[Any], object]) -> None:
    """A call of torch.distributed on the group of that name; where a peer is gone, that is what the error says."""
    try:
        run(_resolve_process_group(GroupName(group)))
    except RuntimeError as error:
        raise PeerLost(str(error)) from error


class Flight:
    """A collective that was started: all ranks start them in one order, as all run one program."""

    def __init__(
        self, group: str, run: Callable[[Any], Any], buffers: Sequence[Tensor], land: Callable[[], Any]
    ) -> None:
        """`run` starts it on the group of that name and returns its work; `land` makes the result of the `buffers`, of
        which the group gets views alone: so it shows whether its threads still hold one."""
        self._held = [(buffer, _holders(buffer)) for buffer in buffers]
        self._land: Callable[[], Any] | None = land
        self._work: Any = None

        def start(found: Any) -> None:
            self._work = run(found)

        with_all(group, start)

    def wait(self) -> None:
        """Until it is over."""
        try:
            self._work.wait()
        except RuntimeError as error:
            raise PeerLost(str(error)) from error

    def finish(self) -> Any:
        """Wait for it; its result. Threads of gloo hold the buffers for a moment after it, and are waited for too."""
        land, self._land = self._land, None
        assert land is not None, "a collective is finished once"
        self.wait()
        self._work = None
        held, self._held = self._held, []
        end = time.monotonic() + 0.1
        while any(_holders(b) > n for b, n in held) and time.monotonic() < end:
            time.sleep(0)
        if time.monotonic() >= end:
            log.warning("threads of the group still hold a buffer: the next peak may count it")
        del held
        return land()


def _holders(buffer: Tensor) -> int:
    if buffer.device.type != "cpu":
        return 0
    return int(torch._C._storage_Use_Count(buffer.untyped_storage()._cdata))


def shard_rows(rows: int, world: int) -> int:
    """Of the longest shard, which is the first: the others are padded to it."""
    return -(-rows // world)


def start_gather(
    shards: Sequence[Tensor], rows: Sequence[int], world: int, group: str, *, dtype: torch.dtype
) -> Flight:
    each = [shard_rows(n, world) * prod(shard.shape[1:]) for n, shard in zip(rows, shards, strict=True)]
    places = [0, *accumulate(each)]
    buffer = torch.empty((world, places[-1]), dtype=dtype, device=shards[0].device)
    mine = torch.zeros((places[-1],), dtype=dtype, device=shards[0].device)
    for shard, place in zip(shards, places, strict=False):
        mine[place : place + shard.numel()].copy_(shard.reshape(-1))
    forms = [((n, *shard.shape[1:]), shard.new_empty) for n, shard in zip(rows, shards, strict=True)]

    def land() -> list[Tensor]:
        made = [new_empty(size, dtype=dtype) for size, new_empty in forms]
        for full, place, size in zip(made, places, each, strict=False):
            whole = full.view(-1)
            for rank in range(world):
                some = whole[rank * size : (rank + 1) * size]
                some.copy_(buffer[rank, place : place + len(some)])
        return made

    return Flight(
        group,
        lambda found: distributed.all_gather_single(buffer.view(-1), mine.view(-1), group=found, async_op=True),
        (buffer, mine),
        land,
    )


def _gather(
    shards: Sequence[Tensor], rows: Sequence[int], world: int, group: str, *, dtype: torch.dtype
) -> list[Tensor]:
    return list(start_gather(shards, rows, world, group, dtype=dtype).finish())


def _gather_fake(
    shards: Sequence[Tensor], rows: Sequence[int], world: int, group: str, *, dtype: torch.dtype
) -> list[Tensor]:
    return [s.new_empty((n, *s.shape[1:]), dtype=dtype) for n, s in zip(rows, shards, strict=True)]


def start_all_reduce(gradients: Sequence[Tensor], world: int, group: str) -> Flight:
    """The mean, bucket and factor as DDP has them; the gradients have been read when it returns."""
    flat = _all_reduce_fake(gradients, world, group)
    place = 0
    for gradient in gradients:
        view = flat.as_strided(gradient.shape, gradient.stride(), place)
        torch.mul(gradient, 1.0 / world, out=view)
        place += gradient.numel()
    return Flight(
        group,
        lambda found: distributed.all_reduce(flat.view(-1), group=found, async_op=True),
        (flat,),
        lambda: flat,
    )


def _all_reduce(gradients: Sequence[Tensor], world: int, group: str) -> Tensor:
    reduced: Tensor = start_all_reduce(gradients, world, group).finish()
    return reduced


def _all_reduce_fake(gradients: Sequence[Tensor], world: int, group: str) -> Tensor:
    return gradients[0].new_empty((sum(gradient.numel() for gradient in gradients),))


def start_reduce_scatter(
    gradients: Sequence[Tensor],
    world: int,
    group: str,
    *,
    by: torch.dtype,
    dtype: torch.dtype,
    replicas: str | None = None,
) -> Flight:
    """The mean, summed in `by`, buffers and factors as FSDP2 has them; of each gradient the padded shard.

    With `replicas`, a group of those who hold the same shards, over these too, when the first sum is there.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import _div_if_needed, _get_gradient_divide_factors

    device = gradients[0].device
    count = _reduce_scatter_fake(gradients, world, group, by=by, dtype=dtype).numel()
    given = torch.empty((world, count), dtype=by, device=device)
    torch._chunk_cat(list(gradients), dim=0, num_chunks=world, out=given)
    others = None if replicas is None else _resolve_process_group(GroupName(replicas))
    own = _resolve_process_group(GroupName(group))
    before, after, how, how_others = _get_gradient_divide_factors(own, others, by, device.type)
    _div_if_needed(given, before)
    sums_all = device.type == "cpu"  # as gloo's reduce_scatter does, but in a copy that its threads let go of later
    out = given[own.rank()] if sums_all else torch.empty((count,), dtype=by, device=device)

    def start(found: Any) -> Any:
        if sums_all:
            return distributed.all_reduce(given.view(-1), op=how, group=found, async_op=True)
        return distributed.reduce_scatter_single(out.view(-1), given.view(-1), op=how, group=found, async_op=True)

    def land() -> Tensor:
        nonlocal out, given
        out = out.clone() if sums_all else out
        del given
        if others is not None:
            with_all(str(replicas), lambda found: distributed.all_reduce(out, op=how_others, group=found))
        _div_if_needed(out, after)
        return out.to(dtype)

    return Flight(group, start, (given, out), land)


def _reduce_scatter(
    gradients: Sequence[Tensor],
    world: int,
    group: str,
    *,
    by: torch.dtype,
    dtype: torch.dtype,
    replicas: str | None = None,
) -> Tensor:
    started = start_reduce_scatter(gradients, world, group, by=by, dtype=dtype, replicas=replicas)
    return torch.as_tensor(started.finish())


def _reduce_scatter_fake(
    gradients: Sequence[Tensor],
    world: int,
    group: str,
    *,
    by: torch.dtype,
    dtype: torch.dtype,
    replicas: str | None = None,
) -> Tensor:
    sizes = (shard_rows(g.shape[0], world) * prod(g.shape[1:]) for g in gradients)
    return gradients[0].new_empty((sum(sizes),), dtype=dtype)


def buffer_bytes(target: Any, given: Sequence[Tensor], *how: Any, **types: Any) -> int:
    """The most bytes that `target` takes at once beyond what it makes; tensors may be fake ones."""
    if target is gather:
        rows, world, _ = how
        each = sum(shard_rows(n, world) * prod(shard.shape[1:]) for n, shard in zip(rows, given, strict=True))
        return int((world + 1) * each * types["dtype"].itemsize)
    if target is not reduce_scatter:
        return 0
    made, by = _reduce_scatter_fake(given, *how, **types), types["by"]
    out: int = made.numel() * by.itemsize
    filling = sum(g.nbytes for g in given if g.shape[0] % how[0])
    filling += max(g.nbytes for g in given) if by != given[0].dtype else 0
    return int(max(how[0] * out + max(filling, out), out + made.nbytes) - made.nbytes)


def start_all_reduce_total(parameters: Sequence[Tensor], gradients: Sequence[Tensor], world: int, group: str) -> Flight:
    """`all_reduce` of what several micro-steps add up to: the earlier ones are in `.grad` of the parameters, which is
    empty afterwards."""
    totals = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        totals.append(gradient if parameter.grad is None else parameter.grad.add_(gradient))
    started = start_all_reduce(totals, world, group)
    for parameter in parameters:
        parameter.grad = None
    return started


def all_reduce_total(parameters: Sequence[Tensor], gradients: Sequence[Tensor], world: int, group: str) -> Tensor:
    """The same, over when it returns."""
    reduced: Tensor = start_all_reduce_total(parameters, gradients, world, group).finish()
    return reduced


_library.impl("gather", _gather, "CompositeExplicitAutograd")
_library.impl("all_reduce", _all_reduce, "CompositeExplicitAutograd")
_library.impl("reduce_scatter", _reduce_scatter, "CompositeExplicitAutograd")
torch.library.register_fake("lowtide::gather", _gather_fake, lib=_library)
torch.library.register_fake("lowtide::all_reduce", _all_reduce_fake, lib=_library)
torch.library.register_fake("lowtide::reduce_scatter", _reduce_scatter_fake, lib=_library)

gather: OpOverload = torch.ops.lowtide.gather.default
all_reduce: OpOverload = torch.ops.lowtide.all_reduce.default
reduce_scatter: OpOverload = torch.ops.lowtide.reduce_scatter.default
COLLECTIVES = (gather, all_reduce, reduce_scatter, all_reduce_total)
STARTS: dict[Any, Callable[..., Flight]] = {
    gather: start_gather,
    all_reduce: start_all_reduce,
    reduce_scatter: start_reduce_scatter,
    all_reduce_total: start_all_reduce_total,
}
"""What starts each of them."""


def finish_collective(started: Flight) -> Any:
    """What the collective that was `started` makes, when it is there."""
    return started.finish()
