"""Collectives taken apart into starts and waits: what that gains, and that the bytes know no clock."""

import random
from dataclasses import replace

import pytest

from lowtide.planning.flights import LINK, Flight, Overlapped, Part, overlapped
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.simulate import simulate

LAYERS, FULL, SHARD, LIVES = 4, 100, 50, 30


def sharded() -> tuple[Problem, dict[int, Flight], list[int]]:
    """Layers whose parameters are gathered, used in forward and again in backward; gradients reduced, then updates."""
    storages = [Storage(SHARD, resident=True, name=f"shard{k}") for k in range(LAYERS)]
    ops: list[Op] = []
    flights: dict[int, Flight] = {}
    updates: list[int] = []

    def storage(size: int, name: str) -> int:
        storages.append(Storage(size, name=name))
        return len(storages) - 1

    def op(name: str, time: float, reads: tuple[int, ...], writes: tuple[int, ...], **more: object) -> None:
        ops.append(Op(name, time, reads, writes, **more))  # type: ignore[arg-type]

    full, kept = [], [storage(LIVES, "input")]
    op("input", 0.0, (), (kept[0],), once=True)
    for k in range(LAYERS):
        flights[len(ops)] = Flight(1.0, 2.0, 1.0)
        full.append(storage(FULL, f"full{k}"))
        op(f"gather{k}", 10.0, (k,), (full[k],), workspace=FULL + SHARD)
        kept.append(storage(LIVES, f"kept{k}"))
        op(f"forward{k}", 20.0, (kept[k], full[k]), (kept[-1],))
    for k in reversed(range(LAYERS)):
        gradient, reduced = storage(FULL, f"gradient{k}"), storage(SHARD, f"reduced{k}")
        op(f"backward{k}", 40.0, (kept[k], kept[k + 1], full[k]), (gradient,), once=True)
        flights[len(ops)] = Flight(1.0, 2.0, 1.0)
        op(f"reduce{k}", 10.0, (gradient,), (reduced,), workspace=FULL, once=True)
        updates.append(len(ops))
        op(f"update{k}", 1.0, (reduced,), (), once=True)
    problem = Problem("sharded", tuple(storages), tuple(ops))
    problem.verify()
    return problem, flights, updates


def found(budget: int = 10**9, order: tuple[int, ...] | None = None, drag: float = 1.0) -> Overlapped | None:
    problem, flights, updates = sharded()
    flights = {o: replace(flight, drag=drag) for o, flight in flights.items()}
    return overlapped(problem, order or problem.program, flights, updates, budget)


def test_all_but_the_ends_is_hidden() -> None:
    beside = found()
    assert beside is not None
    # The first gather has only what it drags to hide behind; the last reduction has nothing, and stays whole.
    assert beside.timeline.waited == pytest.approx(6.0)
    problem, flights, _ = sharded()
    shown = sum(flight.start + flight.wait + flight.drag for flight in flights.values())
    work = sum(op.time for o, op in enumerate(problem.ops) if o not in flights)
    assert beside.timeline.time <= shown + work + 7.0 + 6.0


def test_the_order_of_all_else_stays() -> None:
    problem, *_ = sharded()
    beside = found()
    assert beside is not None
    ran = [beside.steps[o] for o in beside.order]
    computed = [ops[0] for part, ops in ran if part is Part.WHOLE and not problem.ops[ops[0]].name.startswith("update")]
    assert computed == sorted(computed)
    assert sum(beside.problem.ops[o].lane == LINK for o in beside.order) == 2 * LAYERS - 1  # the last one stays whole


@pytest.mark.parametrize("seed", range(30))
def test_within_any_budget_or_not_at_all(seed: int) -> None:
    """Nothing is slower than at once or over the budget, also where gathers run again."""
    problem, *_ = sharded()
    chosen = random.Random(seed)
    order: list[int] = []
    gathers = {op.writes[0]: o for o, op in enumerate(problem.ops) if op.name.startswith("gather")}
    for o in problem.program:
        if problem.ops[o].name.startswith("backward") and chosen.random() < 0.6:
            order.append(gathers[problem.ops[o].reads[2]])
        order.append(o)
    before = simulate(problem, order)
    budget = before.peak + chosen.randrange(0, 400)
    beside = found(budget, tuple(order))
    if beside is not None:
        assert beside.timeline.peak <= budget
        assert beside.timeline.time < before.time
        assert simulate(beside.problem, beside.order) == beside.timeline


@pytest.mark.parametrize(
    ("collective", "first", "before"), [("reduce3", "start_reduce3", SHARD), ("gather2", "start_gather2", FULL)]
)
def test_what_is_under_way_holds_all_that_it_takes(collective: str, first: str, before: int) -> None:
    """Its buffers until it has landed; and from its start as much as it makes, where the group's threads may work."""
    beside = found()
    assert beside is not None
    ran = [beside.problem.ops[o].name for o in beside.order]
    start, over, landed = ran.index(first), ran.index(f"{collective} is over"), ran.index(collective)
    assert landed == over + 1 > start + 3

    def held(storage: str) -> list[int]:
        gone = [replace(s, bytes=0) if s.name == storage else s for s in beside.problem.storages]
        without = simulate(replace(beside.problem, storages=tuple(gone)), beside.order)
        return [a - b for a, b in zip(beside.timeline.live, without.live, strict=True)]

    buffers = FULL if collective == "reduce3" else FULL + SHARD
    assert held(f"buffers of {collective}") == [buffers * (start <= k <= landed) for k in range(len(ran))]
    assert held(f"{collective} before it is there") == [before * (start <= k <= over) for k in range(len(ran))]


def test_bytes_know_no_clock() -> None:
    beside = found(order=None)
    assert beside is not None
    chosen = random.Random(0)
    for _ in range(20):
        ops = tuple(replace(op, time=chosen.uniform(0, 100)) for op in beside.problem.ops)
        other = simulate(replace(beside.problem, ops=ops), beside.order)
        assert other.live == beside.timeline.live


def test_a_drag_that_eats_what_is_gained_is_not_worth_it() -> None:
    assert found(drag=7.5) is None


def test_updates_that_come_to_stand_together_are_one() -> None:
    problem, flights, updates = sharded()
    only = {o: flight for o, flight in flights.items() if problem.ops[o].name == "reduce3"}
    ops = list(problem.ops)
    for o in only:
        ops[o] = replace(ops[o], time=1000.0)
    beside = overlapped(replace(problem, ops=tuple(ops)), problem.program, only, updates, 10**9)
    assert beside is not None
    assert [ops for part, ops in beside.steps if part is Part.WHOLE and len(ops) > 1] == [tuple(updates)]
