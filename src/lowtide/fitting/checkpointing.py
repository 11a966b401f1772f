"""What people do about memory today, as an order of ops: FSDP2 alone, and torch's checkpointing block by block."""

from collections.abc import Iterable
from dataclasses import replace

from lowtide.errors import InputError, shown
from lowtide.fitting.rank import Rank
from lowtide.fitting.sharding import ROOT, block_of
from lowtide.graph.step_graph import StepGraph

CHECKPOINTS = ("none", "selective", "full")
_KEPT = ("scaled_dot_product", "reduce_scatter")
"""What torchtitan's selective mode keeps beside every second product."""


def check_checkpoint(checkpoint: str) -> None:
    """One that there is."""
    if checkpoint not in CHECKPOINTS:
        raise InputError(f"unknown checkpointing {shown(checkpoint)}: write one of {', '.join(CHECKPOINTS)}")


def usual(
    rank: Rank, graph: StepGraph, checkpoint: str = "none", *, compiled: bool = False
) -> tuple[Rank, tuple[int, ...]]:
    """`rank` and its order without a plan.

    Gathered blocks are let go after forward and gathered again in backward, but for what belongs to no block, as FSDP2
    does. `full` keeps what goes into a block, `selective` also attention and every second matrix product, as torchtitan
    does; the rest of a block is made again, all at once, when backward reaches it. In a
    `compiled` block only what its backward reads is kept.
    """
    check_checkpoint(checkpoint)
    root = {s for s in rank.gathered if rank.problem.storages[s].name.startswith(ROOT)}
    gathered = rank.gathered - root
    if checkpoint == "none":
        return rank, recomputing(rank, gathered, {})
    blocks, held = _blocks(rank, graph, selective=checkpoint == "selective")
    if not blocks:
        raise InputError(f"{checkpoint} checkpointing needs blocks with a number in their name, and there are none")
    if not compiled:
        rank = _holding(rank, graph, held)
    return rank, recomputing(rank, gathered | set(blocks), blocks)


def recomputing(rank: Rank, dropped: Iterable[int], blocks: dict[int, str]) -> tuple[int, ...]:
    """The program, with what is in `dropped` let go after forward and made again where backward reads it; what belongs
    to one of `blocks` together with all that backward will want of that block."""
    problem = rank.problem
    dropped = set(dropped)
    wanted = _wanted(rank, dropped)
    of_block: dict[str, list[int]] = {}
    for o in problem.program:
        if o not in rank.backward:
            for block in {blocks[s] for s in problem.writes[o] if s in wanted and s in blocks}:
                of_block.setdefault(block, []).append(o)
    order: list[int] = []
    alive: set[int] = set()
    fell = False

    def make(o: int) -> None:
        for other in problem.reads[o]:
            need(other)
        order.append(o)
        alive.update(problem.writes[o])

    def need(s: int) -> None:
        if s in alive:
            return
        for o in of_block.pop(blocks.get(s, ""), ()):
            if not alive.issuperset(problem.writes[o]):
                make(o)
        if s not in alive:
            make(problem.producers[s][0])

    for o in problem.program:
        if o in rank.backward and not fell:
            fell = True
            alive -= dropped
        if fell:
            for s in problem.reads[o]:
                need(s)
        order.append(o)
        alive.update(problem.writes[o])
    return tuple(order)


def _wanted(rank: Rank, dropped: set[int]) -> set[int]:
    """Of `dropped`, what backward reads, and what making that again takes."""
    problem = rank.problem
    found: set[int] = set()
    todo = [s for o in problem.program if o in rank.backward for s in problem.reads[o]]
    while todo:
        s = todo.pop()
        if s in dropped and s not in found:
            found.add(s)
            todo += problem.reads[problem.producers[s][0]]
    return found


def _blocks(rank: Rank, graph: StepGraph, *, selective: bool) -> tuple[dict[int, str], dict[int, str]]:
    """By storage the block that it is dropped from; and by storage the block whose backward ends what is kept."""
    problem = rank.problem
    made: dict[int, str] = {}
    kept: set[int] = set()
    held: dict[int, str] = {}
    counts: dict[str, int] = {}
    for o in problem.program:
        action = rank.step.actions[o]
        if o in rank.backward or not action.ranks:
            continue
        op = graph.ops[action.ranks[0]]
        block = block_of(f"{op.module}.x")
        kept.update(s for s in problem.reads[o] if s in made and made[s] != block)
        for s in problem.writes[o]:
            made[s] = block
        if block == ROOT or problem.ops[o].once:
            kept.update(problem.writes[o])
            continue
        product = op.op.startswith("aten.mm")
        counts[block] = counts.get(block, 0) + product
        stays = any(word in op.op for word in _KEPT)
        if selective and (stays or (product and counts[block] % 2)):
            kept.update(problem.writes[o])
            held.update(dict.fromkeys(problem.writes[o], block))
    return {s: block for s, block in made.items() if s not in kept}, held


def _holding(rank: Rank, graph: StepGraph, held: dict[int, str]) -> Rank:
    """What selective checkpointing has put aside stays until the backward of its block is over, read again or not."""
    problem = rank.problem
    last: dict[str, int] = {}
    for o in problem.program:
        action = rank.step.actions[o]
        if o in rank.backward and o not in rank.updates and action.ranks:
            last[block_of(f"{graph.ops[action.ranks[0]].module}.x")] = o
    ops = list(problem.ops)
    for s, block in held.items():
        if block in last and s not in ops[last[block]].reads:
            ops[last[block]] = replace(ops[last[block]], reads=(*ops[last[block]].reads, s))
    return replace(rank, step=replace(rank.step, problem=replace(problem, ops=tuple(ops))))
