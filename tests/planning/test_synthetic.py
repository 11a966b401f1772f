import pytest

from lowtide.errors import InputError
from lowtide.planning.benchmark import Asked, run_cases, scaling_problems
from lowtide.planning.policies import quiet
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import OPS_PER_BLOCK, random_layers, repeated_blocks


@pytest.mark.parametrize("blocks", [1, 2, 30])
def test_repeated_blocks_are_a_problem_of_that_size(blocks: int) -> None:
    problem = repeated_blocks(blocks)
    problem.verify()
    assert len(problem.ops) == blocks * OPS_PER_BLOCK
    timeline = simulate(problem, problem.program)
    assert timeline.peak_step == pytest.approx(7 * blocks, abs=6)


def test_no_blocks_are_no_problem() -> None:
    with pytest.raises(InputError, match="at least one block"):
        repeated_blocks(0)


@pytest.mark.parametrize("count", [2, 100, 1000])
def test_random_layers_are_a_problem_that_its_seed_decides(count: int) -> None:
    problem = random_layers(count, seed=3)
    problem.verify()
    assert len(problem.ops) == count
    assert problem == random_layers(count, seed=3)
    assert problem != random_layers(count, seed=4)
    assert all(problem.readers[s] for s in range(count - 1))


def test_the_curve_grows_to_what_was_asked() -> None:
    sizes = [len(problem.ops) for problem in scaling_problems(20_000)]
    assert len(sizes) == 6
    assert all(
        abs(size - goal) < OPS_PER_BLOCK
        for size, goal in zip(sizes, (500, 1000, 2000, 5000, 10000, 20000), strict=True)
    )


def test_cases_say_what_was_reached() -> None:
    problem = repeated_blocks(9)
    asked = Asked(("100%", "40%", "1%"), True, ("mutwo", "keep_all"), 10.0, 0)
    cases = {(case.label.split()[0], case.policy): case for case in run_cases(problem, asked, quiet)}
    assert cases["100%", "keep_all"].overhead == 0
    reached = cases["40%", "mutwo"]
    assert reached.overhead is not None
    assert reached.overhead > 0
    assert reached.bound is None
    assert reached.gap is None
    assert cases["40%", "keep_all"].overhead is None
    assert cases["1%", "mutwo"].overhead is None
    assert not cases["1%", "mutwo"].infeasible
