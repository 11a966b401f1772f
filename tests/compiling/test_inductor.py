"""The executor inductor: inductor's own numbers where nothing is planned, and the budget as measured where it is."""

import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

import lowtide
from lowtide.compiling import inductor
from lowtide.compiling.backend import backend
from tests.compiling.test_backend import KIB, assert_equal, budgeted, only_loop, train

CLOSE = 1e-5
"""Other kernels are fused where something is recomputed, and sums in another order differ in their last bits."""


@pytest.mark.slow
def test_what_fits_is_what_inductor_runs_itself() -> None:
    ours = train(backend, budgeted(30_000 * KIB) | {"executor": "inductor"}, steps=3)
    assert not any(graph.is_rewritten for graph in only_loop().graphs())
    assert_equal(ours, train("inductor", None, steps=3))


@pytest.mark.slow
def test_without_a_budget_it_is_inductor() -> None:
    ours = train(backend, {"executor": "inductor"}, steps=3)
    assert_equal(ours, train("inductor", None, steps=3))


@pytest.mark.slow
def test_a_budget_is_met_with_the_numbers_of_inductor() -> None:
    options = budgeted(3000 * KIB) | {"executor": "inductor"}
    ours = train(backend, options, steps=5)
    loop = only_loop()
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.measured_peak <= options["budget"]
    theirs = train("inductor", None, steps=5)
    first, other = (torch.cat([torch.tensor(x).double().flatten() for x in seen[0]]) for seen in (ours, theirs))
    assert torch.allclose(first, other, rtol=CLOSE, atol=CLOSE)  # the same random numbers, too


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(inductor, "get_cpp_compiler", none)
    with pytest.raises(lowtide.InputError, match="needs a C\\+\\+ compiler"):
        inductor.need_compiler(torch.device("cpu"))
