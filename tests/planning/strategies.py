"""Random problems and orders for hypothesis."""

from dataclasses import replace

from hypothesis import strategies as st

from lowtide.planning.problem import Op, Problem, Storage


@st.composite
def problems(draw: st.DrawFn, max_ops: int = 9, max_storages: int = 12) -> Problem:
    """Problems with residents, kept storages, workspaces, once ops, and optional ops that pack and unpack."""
    storages = [Storage(draw(st.integers(0, 6)), resident=True) for _ in range(draw(st.integers(0, 2)))]
    ops: list[Op] = []
    sizes, times = st.integers(0, 9), st.integers(0, 6)
    pairs = draw(st.integers(0, 1)) if max_ops >= 4 else 0
    count = draw(st.integers(1, max_ops - 2 * pairs))
    for _ in range(count):
        there = list(range(len(storages)))
        reads = draw(st.lists(st.sampled_from(there), max_size=3)) if there else []
        fits = max_storages - pairs - len(storages)
        writes = []
        for _ in range(draw(st.integers(0 if fits < count else 1, max(0, min(2, fits))))):
            writes.append(len(storages))
            storages.append(Storage(draw(sizes), keep=draw(st.integers(0, 5)) == 0))
        once = draw(st.integers(0, 7)) == 0
        workspace = draw(st.sampled_from([0, 0, 0, 1, 4]))
        reuses = draw(_reused(storages, reads, writes))
        ops.append(Op(f"op{len(ops)}", draw(times), tuple(reads), tuple(writes), workspace, once, reuses=reuses))
    written = [s for op in ops for s in op.writes]
    for _ in range(pairs if written else 0):
        target, small = draw(st.sampled_from(written)), len(storages)
        storages.append(Storage(draw(st.integers(0, 2))))
        pack = Op("pack", draw(times), (target,), (small,), optional=True, once=draw(st.integers(0, 5)) == 0)
        unpack = Op("unpack", draw(times), (small,), (target,), draw(st.sampled_from([0, 1])), optional=True)
        at = draw(st.integers(0, len(ops)))
        ops[at:at] = [pack]
        ops.append(unpack)
    return Problem("random", tuple(storages), tuple(ops))


def _reused(storages: list[Storage], reads: list[int], writes: list[int]) -> st.SearchStrategy[int | None]:
    """A storage that an op with one output may take over; the output is given its size."""
    able = [s for s in reads if not storages[s].resident]
    if not able or len(writes) != 1:
        return st.none()

    def sized(s: int | None) -> int | None:
        if s is not None:
            storages[writes[0]] = replace(storages[writes[0]], bytes=storages[s].bytes)
        return s

    return st.sampled_from([None, *able]).map(sized)


@st.composite
def training_problems(draw: st.DrawFn, max_layers: int = 6) -> Problem:
    """A chain of layers forward, then backward in reverse, each step of backward reading the layer's activation."""
    layers = draw(st.integers(2, max_layers))
    storages = [Storage(draw(st.integers(0, 4)), resident=True)]
    ops: list[Op] = []
    sizes, times = st.integers(1, 9), st.integers(0, 6)
    activations: list[int] = []
    before = 0
    for layer in range(layers):
        storages.append(Storage(draw(sizes)))
        skip = [draw(st.sampled_from(activations))] if activations and draw(st.integers(0, 2)) == 0 else []
        workspace = draw(st.sampled_from([0, 0, 3]))
        reads, new = [before, *skip], len(storages) - 1
        reuses = draw(_reused(storages, reads, [new]))
        ops.append(Op(f"forward{layer}", draw(times), tuple(reads), (new,), workspace, reuses=reuses))
        before = len(storages) - 1
        activations.append(before)
    gradient = before
    for layer in reversed(range(layers)):
        storages.append(Storage(draw(sizes), keep=layer == 0))
        new = len(storages) - 1
        reuses = draw(_reused(storages, [gradient, activations[layer]], [new]))
        ops.append(Op(f"backward{layer}", draw(times), (gradient, activations[layer]), (new,), reuses=reuses))
        gradient = new
        if draw(st.booleans()):
            ops.append(Op(f"update{layer}", draw(times), (gradient,), (), once=True))
    return Problem("chain", tuple(storages), tuple(ops))


@st.composite
def orders(draw: st.DrawFn, problem: Problem) -> tuple[int, ...]:
    """Orders that keep the program's first runs, with other ops strewn in: some can run, some cannot."""
    order = list(problem.program)
    for _ in range(draw(st.integers(0, 6))):
        order.insert(draw(st.integers(0, len(order))), draw(st.integers(0, len(problem.ops) - 1)))
    if draw(st.integers(0, 4)) == 0 and order:
        order.pop(draw(st.integers(0, len(order) - 1)))
    return tuple(order)


@st.composite
def with_lanes(draw: st.DrawFn, base: st.SearchStrategy[Problem]) -> Problem:
    """A problem some of whose storages can be swapped out and in, on one lane or on two."""
    problem = draw(base)
    storages, ops = list(problem.storages), list(problem.ops)
    able = [s for s in dict.fromkeys(s for o in problem.program for s in problem.writes[o]) if not storages[s].keep]
    lanes = draw(st.sampled_from([("copy", "copy"), ("out", "in")]))
    times = st.integers(0, 8)
    for s in able[: draw(st.integers(0, 4))]:
        away = len(storages)
        storages.append(Storage(storages[s].bytes, off_device=True))
        ops += [
            Op(f"offload{s}", draw(times), (s,), (away,), optional=True, lane=lanes[0]),
            Op(f"release{s}", draw(st.sampled_from([0, 0, 1])), (s, away), (), optional=True),
            Op(f"prefetch{s}", draw(times), (away,), (s,), optional=True, lane=lanes[1]),
        ]
    return Problem(problem.name, tuple(storages), tuple(ops))


@st.composite
def swapped_orders(draw: st.DrawFn, problem: Problem) -> tuple[int, ...]:
    """The program with swaps strewn in: offload, release and prefetch in that order, anywhere behind the making."""
    order = list(problem.program)
    for o, op in enumerate(problem.ops):
        if op.name.startswith("offload") and draw(st.booleans()):
            maker = next(p for p in problem.producers[op.reads[0]] if not problem.ops[p].optional)
            at = order.index(maker)
            for step in [o, o + 1, o + 2] if draw(st.booleans()) else [o, o + 2]:
                at = draw(st.integers(at + 1, len(order)))
                order.insert(at, step)
    return tuple(order)
