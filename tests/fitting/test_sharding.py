"""One rank of FSDP2 as a problem: bytes by hand, and orders that can run."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.fitting.checkpointing import usual
from lowtide.fitting.rank import Rank, accumulating, alone
from lowtide.fitting.sharding import Links, shard, spread
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.planning.policies import policy
from lowtide.planning.simulate import Timeline, simulate
from lowtide.profiling.estimate import A_CPU
from lowtide.records.vocabulary import Role

WIDTH, BLOCKS = 32, 5
LINKS = Links(1e6, 1e5)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean()


def drawn(dtype: torch.dtype = torch.float32, batch: int = 4) -> Sketch:
    with torch.device("meta"):
        model, x = Deep().to(dtype), torch.ones(batch, WIDTH, dtype=dtype)
    return sketch(model, lambda m: torch.optim.AdamW(m.parameters(), fused=True), x, None, A_CPU)


def sharded(step: Sketch, world: int = 4) -> Rank:
    return shard(step.late, step.plain.graph, world, LINKS)


def ran(step: Sketch, world: int = 4, checkpoint: str = "none", parallel: str = "fsdp") -> Timeline:
    rank = spread(step.late, step.plain.graph, world, parallel, LINKS)
    rank, order = usual(rank, step.plain.graph, checkpoint)
    return simulate(rank.problem, order)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shards_are_float32_and_whole_parameters_are_not(dtype: torch.dtype) -> None:
    step = drawn(dtype)
    one = sharded(step)
    graph = step.plain.graph
    held = {storage.name: one.problem.storages[storage.index].bytes for storage in graph.storages if storage.resident}
    assert held["blocks.1.0.weight"] == WIDTH * WIDTH * 4 // 4
    parameters = sum(s.role is Role.PARAMETER for s in graph.storages)
    assert parameters == 4 * BLOCKS + 2
    gathered = {one.problem.storages[s].name: one.problem.storages[s].bytes for s in one.gathered}
    assert gathered["blocks.2, gathered"] == 2 * (WIDTH * WIDTH + WIDTH) * dtype.itemsize
    assert set(gathered) == {*(f"blocks.{k}, gathered" for k in range(BLOCKS)), "all else, gathered"}


def test_every_group_is_reduced_once_and_the_update_reads_shards() -> None:
    one = sharded(drawn())
    names = [op.name for op in one.problem.ops]
    assert sum(name.startswith("reduce ") for name in names) == BLOCKS + 1
    assert sum(name.startswith("gather ") for name in names) == BLOCKS + 1
    (update,) = (op for op in one.problem.ops if op.name.startswith("update"))
    read = {one.problem.storages[s].name for s in update.reads if not one.problem.storages[s].resident}
    assert read == {*(f"blocks.{k}, gradient of the shard" for k in range(BLOCKS)), "all else, gradient of the shard"}


def test_buffers_are_those_of_fsdp2() -> None:
    """A flat one around each gather, the next block ahead, and a float32 copy until the next reduction."""
    one = sharded(drawn(torch.bfloat16))
    block = 2 * (WIDTH * WIDTH + WIDTH)
    sizes = {storage.name: storage.bytes for storage in one.problem.storages}
    assert sizes["the next block, gathered ahead"] == 2 * block
    assert sizes["blocks.1, gradients in one piece"] == 4 * block
    (gather,) = (op for op in one.problem.ops if op.name == "gather blocks.1")
    assert gather.workspace == 2 * block + 2 * block // 4
    copy = [s.name for s in one.problem.storages].index("blocks.2, gradients in one piece")
    names = [one.problem.ops[o].name for o in (*one.problem.producers[copy], *one.problem.readers[copy])]
    places = [[op.name for op in one.problem.ops].index(name) for name in (names[0], names[-1], "reduce blocks.1")]
    assert places[0] < places[1] == places[2] - 1


def test_gathering_again_takes_less_than_keeping() -> None:
    step = drawn()
    one = sharded(step)
    kept = simulate(one.problem, one.problem.program)
    assert ran(step).peak < kept.peak
    assert ran(step).time > kept.time


def test_more_devices_take_less_of_each() -> None:
    step = drawn()
    peaks = [ran(step, world).peak for world in (2, 4, 64)]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


@pytest.mark.parametrize("world", [2, 3, 8, 64, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_stays_on_a_rank_by_hand(world: int, dtype: torch.dtype) -> None:
    """A share of each parameter and of both of its states in float32, the steps, the batch and the next block."""
    step = drawn(dtype)
    one = sharded(step, world)
    sizes = [WIDTH * WIDTH, WIDTH] * 2 * BLOCKS + [WIDTH, 1]
    shares = sum(-(-4 * size // world) for size in sizes)
    steps = sum(-(-4 * 4 // (dtype.itemsize * world)) for _ in sizes)
    ahead = 2 * dtype.itemsize * (WIDTH * WIDTH + WIDTH)
    batch = dtype.itemsize * 4 * WIDTH
    held = sum(storage.bytes for storage in one.problem.storages if storage.resident)
    assert held == 3 * shares + steps + ahead + batch


def test_gradients_that_are_summed_stay_as_shards() -> None:
    step = drawn(torch.bfloat16)
    one = sharded(step)
    summed = accumulating(one, step.plain.graph, 4)
    pieces = sum(one.problem.sizes[s] for s in one.pieces)
    assert summed.problem.storages[-1].bytes == pieces
    held = [sum(s.bytes for s in rank.problem.storages if s.resident) for rank in (one, summed)]
    assert held[1] == held[0] + pieces
    times = [sum(rank.problem.times[o] for o in rank.updates) for rank in (one, summed)]
    assert times[1] == pytest.approx(times[0] / 4)
    parameters = [storage for storage in step.plain.graph.storages if storage.role is Role.GRADIENT]
    alone_step = accumulating(alone(step.late, step.plain.graph), step.plain.graph, 1)
    assert alone_step.problem.storages[-1].bytes == sum(storage.bytes for storage in parameters)


def test_the_planner_gathers_once_where_there_is_room_and_again_where_there_is_not() -> None:
    """ZeRO-2 where all gathered blocks have room, ZeRO-3 where they have not."""
    one = sharded(drawn())
    kept = simulate(one.problem, one.problem.program).peak
    for room, again in ((kept, False), (ran(drawn()).peak, True)):
        plan = policy("optimal").plan(one.problem, room, time_limit=2.0)
        runs = [sum(o == gather for o in plan.schedule.ops) for gather in one.gathers]
        assert (max(runs) > 1) is again


def test_a_ring_is_as_wide_as_its_way_out_of_a_node() -> None:
    links = Links(peer=450.0, network=40.0)
    assert links.rate(8) == 450.0
    assert links.rate(64) == 320.0
    assert links.rate(64, sharing=8) == 40.0
    assert Links(peer=100.0, network=40.0).rate(16) == 100.0


def test_a_collective_costs_what_does_not_fit_beside_compute() -> None:
    step = drawn()
    fast, slow = (shard(step.late, step.plain.graph, 4, Links(rate)) for rate in (1e12, 1.0))
    block = 2 * (WIDTH * WIDTH + WIDTH) * 4
    (gather,) = (op for op in slow.problem.ops if op.name == "gather blocks.2")
    sending = block * 3 / 4 / 1.0
    compute = sum(op.time for op in step.late.problem.ops if op.name.startswith(("addmm", "tanh"))) / BLOCKS
    assert gather.time == pytest.approx(1.1 * sending - compute, rel=0.01)
    (hidden,) = (op for op in fast.problem.ops if op.name == "gather blocks.2")
    assert hidden.time == pytest.approx(0.1 * block * 3 / 4 / 1e12)


def test_hsdp_takes_what_a_node_of_fsdp_takes() -> None:
    step = drawn()
    assert ran(step, 32, parallel="hsdp").peak == ran(step, 8).peak
    assert ran(step, 32, parallel="hsdp").time > ran(step, 8).time


def test_ddp_takes_more_than_one_device_by_its_buckets() -> None:
    step = drawn()
    parameters = sum(p.numel() for p in step.plain.graph.model.parameters())
    assert ran(step, 4, parallel="ddp").peak == ran(step, 1).peak + 4 * parameters


def test_the_planner_decides_what_to_gather_again() -> None:
    step = drawn()
    as_it_is = ran(step)
    plan = policy("optimal").plan(sharded(step).problem, as_it_is.peak, time_limit=2.0)
    assert plan.peak <= as_it_is.peak
    assert plan.time <= as_it_is.time


def test_bad_worlds_get_one_sentence() -> None:
    step = drawn()
    for world, parallel, said in (
        (0, "fsdp", "1 to 512 devices, not 0"),
        (513, "fsdp", "1 to 512 devices, not 513"),
        (12, "hsdp", "12 is no multiple of 8"),
        (8, "hsdp", "8 is no multiple of 8 above it"),
        (8, "pp", "unknown way to train on many devices"),
    ):
        with pytest.raises(lowtide.InputError, match=said) as raised:
            ran(step, world, parallel=parallel)
        assert "\n" not in str(raised.value)
    with torch.device("meta"):
        model = Deep()
        model.head.to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, WIDTH)
    with pytest.raises(lowtide.InputError, match="one dtype"):
        lowtide.fit(model, optimizer, x, lambda m, b: _mixed(m, b), device="l4", world=2)


def _mixed(model: Any, x: Tensor) -> Any:
    for block in model.blocks:
        x = block(x)
    return model.head(x.double()).mean()
