import pytest

from lowtide.planning.policies import BudgetInfeasible, chen
from lowtide.planning.policies.activations import phases
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.simulate import simulate


def chain(layers: int) -> Problem:
    """Layers of a large inner value and a small output; backward reads both."""
    storages, ops = [Storage(1, resident=True)], []
    before, inner = 0, []
    for layer in range(layers):
        storages += [Storage(10), Storage(1)]
        wide = len(storages) - 2
        ops += [Op(f"wide{layer}", 1, (before,), (wide,)), Op(f"narrow{layer}", 1, (wide,), (wide + 1,))]
        inner.append((before, wide))
        before = wide + 1
    for layer in reversed(range(layers)):
        storages.append(Storage(1))
        ops.append(Op(f"back{layer}", 2, (before, *inner[layer]), (len(storages) - 1,)))
        before = len(storages) - 1
    return Problem("chain", tuple(storages), tuple(ops))


def test_nine_layers_make_three_segments() -> None:
    problem = chain(9)
    found = phases(problem)
    assert found.split == 17
    cuts = chen.segments(found)
    assert cuts == (5, 11)
    order = chen.segmented(found, cuts)
    again = [problem.ops[o].name for step, o in enumerate(order) if o in order[:step]]
    assert again[:5] == ["wide3", "narrow3", "wide4", "narrow4", "wide5"]
    assert again[5:] == ["wide0", "narrow0", "wide1", "narrow1", "wide2"]
    assert simulate(problem, order).peak < simulate(problem, problem.program).peak / 2


def test_it_keeps_all_where_that_fits_and_says_where_it_does_not() -> None:
    problem = chain(9)
    peak = simulate(problem, problem.program).peak
    assert chen.plan(problem, peak).overhead == 0
    plan = chen.plan(problem, peak - 1)
    assert plan.overhead == pytest.approx(10 / problem.base_time)
    assert plan.note == "3 segments"
    with pytest.raises(BudgetInfeasible) as raised:
        chen.plan(problem, plan.peak - 1)
    assert raised.value.floor == plan.peak
    assert not raised.value.proven


def test_what_only_an_effect_can_make_is_stored() -> None:
    problem = chain(9)
    ops = list(problem.ops)
    ops[2] = Op("wide1", 1, ops[2].reads, ops[2].writes, once=True)
    effect = Problem("effect", problem.storages, tuple(ops))
    found = phases(effect)
    order = chen.segmented(found, chen.segments(found))
    assert order.count(2) == 1
    simulate(effect, order)
