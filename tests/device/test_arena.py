"""The arena: planned addresses, and never two live tensors in the same bytes, whatever a step does."""

import gc
import itertools
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from lowtide.device import arena as arenas
from lowtide.device import shim
from lowtide.device.arena import Arena, Layout, StepCounts, arena_for
from lowtide.device.limit import give_back, process_bytes
from lowtide.device.meter import ShimMeter

pytestmark = pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler on this machine")


def filled(size: int, value: int) -> Tensor:
    return torch.full((size,), value, dtype=torch.uint8)


def holds(tensor: Tensor, value: int) -> bool:
    """Asked of numpy, which takes nothing from torch's allocator."""
    return bool((tensor.numpy() == value).all())


def run(script: list[tuple[str, int]], held: dict[int, tuple[Tensor, int]]) -> None:
    """Take (`+`, bytes) and give back (`-`, which one); every tensor keeps its own value all the time."""
    for number, (what, amount) in enumerate(script):
        if what == "+":
            held[number] = (filled(amount, number % 251), number % 251)
        elif held:
            del held[sorted(held)[amount % len(held)]]
        for tensor, value in held.values():
            assert holds(tensor, value), "two live tensors share bytes"


SCRIPT = [("+", 300_000), ("+", 5_000), ("-", 0), ("+", 300_000), ("+", 70), ("-", 0), ("-", 0), ("-", 0)]


def trained(script: list[tuple[str, int]]) -> tuple[Arena, Layout]:
    """An arena that has seen one step."""
    arena, layout = Arena(), Layout()
    with arena.step(layout, usual=True):
        run(script, {})
    return arena, layout


def by_plan(arena: Arena, layout: Layout, script: list[tuple[str, int]]) -> StepCounts:
    with arena.step(layout, usual=True):
        run(script, {})
    assert arena.last is not None
    return arena.last


def test_a_step_that_is_known_lies_where_it_was_planned() -> None:
    arena, layout = trained(SCRIPT)
    assert layout.placement is not None
    assert arena.bytes == layout.placement.extent == layout.placement.load
    counts = by_plan(arena, layout, SCRIPT)
    assert (counts.placed, counts.kept, counts.unforeseen, counts.taken) == (4, 0, 0, 0)
    assert counts.placed_B == sum(size for what, size in SCRIPT if what == "+")


def test_what_outlives_the_step_is_not_in_the_arena() -> None:
    arena, layout = Arena(), Layout()
    for _ in range(3):
        with arena.step(layout, usual=True):
            loss, other = filled(40_000, 1), filled(80_000, 2)
            del other
        kept = loss
    assert arena.last == StepCounts(1, 80_000, 1, 40_000, 0, 0, 0, 0)
    assert shim.load_shim().lowtide_arena_live(arena._handle) == 0
    assert holds(kept, 1)


def test_a_step_that_is_not_usual_is_not_learned() -> None:
    arena, layout = Arena(), Layout()
    with arena.step(layout, usual=False):
        run(SCRIPT, {})
    assert (arena.bytes, layout.handle) == (0, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("+"), st.sampled_from([64, 100, 4_096, 4_100, 300_000])),
        st.tuples(st.just("-"), st.integers(0, 20)),
    ),
    max_size=25,
)


@given(recorded=STEPS, later=st.lists(STEPS, min_size=1, max_size=3), same=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_comes_no_two_live_tensors_share_bytes(
    recorded: list[tuple[str, int]], later: list[list[tuple[str, int]]], same: bool
) -> None:
    """Also where a step is another one than recorded, and keeps its tensors into the next."""
    arena, layout = Arena(), Layout()
    held: dict[int, tuple[Tensor, int]] = {}
    for number, script in enumerate([recorded, *later]):
        mine = {} if same else {1000 * number + k: value for k, value in enumerate(held.values())}
        with arena.step(layout, usual=True):
            run(recorded + script if same and number else script, mine)
        held = mine
    for tensor, value in held.values():
        assert holds(tensor, value)


def test_what_was_not_foreseen_goes_to_the_allocator_and_is_counted() -> None:
    arena, layout = trained(SCRIPT)
    extra = [*SCRIPT[:2], ("+", 999), ("-", 2), *SCRIPT[2:]]
    counts = by_plan(arena, layout, extra)
    assert (counts.placed, counts.unforeseen, counts.unforeseen_B, counts.taken) == (4, 1, 999, 0)
    assert by_plan(arena, layout, SCRIPT[:1]).placed == 1, "a step that ends early"
    assert by_plan(arena, layout, SCRIPT).placed == 4, "and the next is whole again"


def test_an_allocation_that_is_left_out_is_skipped() -> None:
    script = [("+", 1_000 * (k + 1)) for k in range(20)]
    arena, layout = trained([*script, *[("-", 0)] * 20])
    counts = by_plan(arena, layout, [*script[:5], *script[7:], *[("-", 0)] * 18])
    assert (counts.placed, counts.unforeseen, counts.taken) == (18, 0, 0)


def test_another_step_is_recorded_anew_and_not_for_ever() -> None:
    arena, layout = trained(SCRIPT)
    other = [("+", 123_456), ("+", 654_321), ("-", 0), ("-", 0)]
    assert by_plan(arena, layout, other).is_another
    assert layout.handle is None
    with arena.step(layout, usual=True):
        run(other, {})
    assert by_plan(arena, layout, other).placed == 2
    for _ in range(3):
        for script in (SCRIPT, other):
            with arena.step(layout, usual=True):
                run(script, {})
    assert layout.recordings == arenas.RECORDINGS


def test_a_tensor_held_over_is_never_overwritten() -> None:
    arena, layout = trained(SCRIPT)
    held: dict[int, tuple[Tensor, int]] = {}
    with arena.step(layout, usual=True):
        run(SCRIPT[:2], held)  # foreseen to die in the step
    counts = by_plan(arena, layout, SCRIPT)
    assert counts.taken >= 2
    assert all(holds(tensor, value) for tensor, value in held.values())
    held.clear()
    with arena.step(layout, usual=True):  # recorded anew
        run(SCRIPT, {})
    assert arena.last is None
    assert by_plan(arena, layout, SCRIPT).taken == 0


def test_after_an_exception_the_arena_goes_on() -> None:
    arena, layout = trained(SCRIPT)

    def fails() -> None:
        with arena.step(layout, usual=True):
            run(SCRIPT[:3], {})
            raise ValueError("in the middle")

    for _ in range(2):
        with pytest.raises(ValueError, match="in the middle"):
            fails()
    assert by_plan(arena, layout, SCRIPT).placed == 4
    layout = Layout()
    with pytest.raises(ValueError, match="in the middle"):
        fails()  # while it is recorded
    assert layout.handle is None
    assert filled(10, 3).sum() == 30


def test_one_block_serves_all_kinds_of_step() -> None:
    arena, small, large = Arena(), Layout(), Layout()
    big = [("+", 2_000_000), ("-", 0)]
    for _ in range(2):
        for layout, script in ((small, SCRIPT), (large, big)):
            with arena.step(layout, usual=True):
                run(script, {})
    assert arena.bytes == 2_000_000
    assert by_plan(arena, small, SCRIPT).placed == 4
    assert by_plan(arena, large, big).placed == 1


def test_other_threads_are_not_part_of_the_step() -> None:
    arena, layout = trained(SCRIPT)
    made: list[Tensor] = []

    def elsewhere() -> None:
        made.extend(filled(300_000, 9) for _ in range(5))
        with arena.step(layout, usual=True):  # the arena is in use: this one does without
            run(SCRIPT, {})

    with arena.step(layout, usual=True):
        held: dict[int, tuple[Tensor, int]] = {}
        run(SCRIPT[:2], held)
        worker = threading.Thread(target=elsewhere)
        worker.start()
        worker.join()
        run([], held)
        held.clear()
    assert all(holds(tensor, 9) for tensor in made)
    assert arena.last is not None
    assert (arena.last.placed, arena.last.unforeseen) == (2, 0)


def test_steps_of_several_threads_with_their_own_arenas() -> None:
    pairs = [trained(SCRIPT) for _ in range(3)]
    found: list[StepCounts] = []

    def train(arena: Arena, layout: Layout) -> None:
        found.extend(by_plan(arena, layout, SCRIPT) for _ in range(20))

    workers = [threading.Thread(target=train, args=pair) for pair in pairs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 60
    assert all((counts.placed, counts.unforeseen, counts.taken) == (4, 0, 0) for counts in found)


def test_a_step_within_a_step_does_without() -> None:
    arena, layout = trained(SCRIPT)
    other, another = trained(SCRIPT)
    with arena.step(layout, usual=True):
        run(SCRIPT[:3], {})
        with other.step(another, usual=True):
            run(SCRIPT, {})
        with other.step(Layout(), usual=True):
            run(SCRIPT, {})
    assert other.last is None
    assert arena.last is not None
    assert arena.last.placed >= 2, "what came within counts as not foreseen"


def mapped_bytes() -> int:
    return sum(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
        if line.startswith("Rss:")
    )


def test_the_memory_goes_with_the_arena_or_with_its_last_tensor() -> None:
    size = 64 * 2**20
    script = [("+", size), ("-", 0)]
    arena, layout = trained(script)
    before = mapped_bytes()
    held: dict[int, tuple[Tensor, int]] = {}
    with arena.step(layout, usual=True):
        run(script[:1], held)
    there = weakref.ref(arena)
    del arena
    gc.collect()
    assert there() is None
    assert mapped_bytes() > before - size // 2, "a tensor still lives in it"
    run([], held)
    held.clear()
    assert mapped_bytes() < before - size // 2


def test_pages_can_be_given_back_between_steps() -> None:
    size = 64 * 2**20
    script = [("+", size), ("-", 0)]
    arena, layout = trained(script)
    there, limited = mapped_bytes(), process_bytes()
    give_back()
    assert mapped_bytes() < there - size // 2
    assert process_bytes() <= limited - size, "they count towards no limit either"
    assert by_plan(arena, layout, script).placed == 1, "a step takes them as it needs them"
    arena.release()
    arena.touch()
    assert mapped_bytes() > there - size // 2
    assert by_plan(arena, layout, script).placed == 1


def test_a_forked_process_has_its_own() -> None:
    arena, layout = trained(SCRIPT)
    held: dict[int, tuple[Tensor, int]] = {}
    with arena.step(layout, usual=True):
        run(SCRIPT[:2], held)
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)  # as in a DataLoader's worker
                held[0][0].fill_(77)  # in the child's copy alone
                run([("+", 300_000), ("-", 0)], {})
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        run([], held)
        held.clear()
    assert by_plan(arena, layout, SCRIPT).placed == 4


class Batches(torch.utils.data.Dataset[Tensor]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, k: int) -> Tensor:
        return filled(100_000, k)


def test_forked_workers_allocate_while_steps_run() -> None:
    arena, layout = trained(SCRIPT)
    loader = DataLoader(Batches(), num_workers=2, multiprocessing_context="fork", batch_size=None)
    for number, batch in enumerate(loader):
        by_plan(arena, layout, SCRIPT)
        assert holds(batch, number)


def test_memory_that_is_not_there_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shim.load_shim(), "lowtide_arena_open", lambda _: None)
    arena, layout = trained(SCRIPT)
    assert "for the step's memory in one piece" in caplog.text
    with arena.step(layout, usual=True):
        run(SCRIPT, {})
    assert (arena.bytes, arena.last) == (0, None)


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(arena_for(torch.device("cpu")), Arena)
    assert arena_for(torch.device("cuda")) is None
    monkeypatch.setattr(arenas, "compiler", lambda: None)
    assert arena_for(torch.device("cpu")) is None


def test_the_meter_counts_the_same_in_the_arena() -> None:
    arena, layout = trained(SCRIPT)
    meter = ShimMeter()
    taken = []
    for step in (arena.step(layout, usual=True), arena.step(Layout(), usual=False)):
        with step:
            meter.start()
            run(SCRIPT[:2], {})
            taken.append(meter.stop())
    assert taken[0] == taken[1]


def test_addresses_are_aligned_and_apart() -> None:
    rng = np.random.default_rng(0)
    script = [("+", int(size)) for size in rng.integers(1, 200_000, 40)] + [("-", 0)] * 40
    arena, layout = trained(script)
    with arena.step(layout, usual=True):
        tensors = [filled(size, 1) for what, size in script if what == "+"]
        ranges = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
        del tensors
    assert all(begin % 64 == 0 for begin, _ in ranges)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    assert ranges[-1][1] - ranges[0][0] <= arena.bytes
