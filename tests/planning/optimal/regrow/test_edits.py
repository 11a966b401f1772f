"""Orders of runs as arrays: after any edits the bytes are the simulator's."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from lowtide.planning.optimal.compiled import OPTIONS
from lowtide.planning.optimal.lifetimes import live_bytes
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.edits import begin, insert, remove
from lowtide.planning.optimal.regrow.recreate import take_out
from lowtide.planning.optimal.regrow.steps import give_keys, mark, undo
from lowtide.planning.optimal.regrow.tables import LENGTH, Ints, Order, Tables, order_of, tables_of
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, verify
from tests.planning.strategies import problems, training_problems

BEGIN, INSERT, REMOVE, TAKE_OUT, MARK, UNDO, KEYS = range(7)


def _edit(tables: Tables, order: Order, kind: int, step: int, k: int) -> bool:
    """One edit, as compiled code makes it."""
    if kind == BEGIN:
        begin(tables, order)
    elif kind == INSERT:
        return insert(tables, order, step, k)
    elif kind == REMOVE:
        return remove(tables, order, step)
    elif kind == TAKE_OUT:
        return take_out(tables, order, step) >= 0
    elif kind == MARK:
        mark(order)
    elif kind == UNDO:
        undo(order)
    else:
        give_keys(order)
    return True


edit = njit(_edit, **OPTIONS)  # not kept on disk, where it would outlive a change of what it calls


class Edited:
    """An order under edits, compared with the simulator after each."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.view = problem, ProgramView(problem)
        self.tables, self.order = tables_of(self.view), order_of(self.view, problem.program, 4)
        self.make(BEGIN)
        self.make(MARK)

    @property
    def ops(self) -> list[int]:
        """Program positions, without the op at the end."""
        ops: Ints = self.order.ops[: self.order.state[LENGTH] - 1]
        return [int(k) for k in ops]

    def make(self, kind: int, step: int = 0, k: int = 0) -> None:
        assert edit(self.tables, self.order, kind, step, k)
        order = [self.problem.program[k] for k in self.ops]
        verify(self.problem, Schedule(tuple(order)))
        live = live_bytes(self.problem, order) - self.problem.resident_bytes
        assert self.order.live[: len(order)].tolist() == live.tolist()
        keys = self.order.keys[: self.order.state[LENGTH]]
        assert np.all(np.diff(keys) > 0)
        for k in range(self.view.count):
            runs = self.order.runs[k, : self.order.counts[k]]
            assert runs.tolist() == [key for key, o in zip(keys.tolist(), self.ops, strict=False) if o == k]

    def again(self) -> list[int]:
        """Steps that are not their op's first run."""
        ops = self.ops
        return [step for step, k in enumerate(ops) if k in ops[:step]]


@settings(max_examples=80)
@given(st.data())
def test_bytes_are_the_simulators_after_any_edits(data: st.DataObject) -> None:
    edited = Edited(data.draw(st.one_of(problems(), training_problems())))
    marked = edited.ops
    for _ in range(data.draw(st.integers(1, 14))):
        kind = data.draw(st.sampled_from([INSERT, INSERT, INSERT, REMOVE, TAKE_OUT, MARK, UNDO, KEYS]))
        if kind == INSERT:
            step = data.draw(st.integers(1, len(edited.ops)))
            able = [k for k in set(edited.ops[:step]) if edited.tables.can_rerun[k]]
            if able:
                edited.make(INSERT, step, data.draw(st.sampled_from(sorted(able))))
        elif kind in (REMOVE, TAKE_OUT):
            if edited.again():
                edited.make(kind, data.draw(st.sampled_from(edited.again())))
        elif kind == KEYS:  # only between moves
            edited.make(MARK)
            edited.make(KEYS)
            edited.make(MARK)
            marked = edited.ops
        else:
            edited.make(kind)
            marked = edited.ops if kind == MARK else marked
            assert edited.ops == marked


def test_a_run_goes_with_those_that_only_served_it() -> None:
    ops = (Op("a", 1, (), (0,)), Op("b", 1, (0,), (1,)), Op("c", 1, (1,), (2,)), Op("d", 1, (1, 2), (3,)))
    edited = Edited(Problem("chain", tuple(Storage(1) for _ in range(4)), ops))
    edited.make(INSERT, 3, 0)
    edited.make(INSERT, 4, 1)
    assert edited.ops == [0, 1, 2, 0, 1, 3]
    edited.make(TAKE_OUT, 4)
    assert edited.ops == [0, 1, 2, 3]
    edited.make(UNDO)
    assert edited.ops == [0, 1, 2, 3]


def test_nothing_is_done_where_the_list_of_edits_or_the_keys_are_full() -> None:
    ops = (Op("a", 1, (), (0,)), Op("b", 1, (0,), (1,)))
    edited = Edited(Problem("two", (Storage(1), Storage(1)), ops))
    made = 0
    while edit(edited.tables, edited.order, INSERT, 1, 0):
        made += 1
    before = edited.ops
    assert 0 < made < 40
    edited.make(KEYS)
    assert edited.ops == before
