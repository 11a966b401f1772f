"""The executor inductor: inductor's own numbers where nothing is planned, and the budget as measured where it is.

The peer is torch's inductor alone, in the same process. With `ATEN_CPU_CAPABILITY` set to `avx2` or `default` that peer
itself is broken on this model in torch 2.13: gradients of the order of 1e18 or NaN, where `aot_eager` and
inductor on avx512 are right. There these tests compare with garbage and say nothing about lowtide.
"""

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
    ours = train(backend, options, optimizer_of=torch.optim.SGD)
    loop = only_loop()
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.measured_peak <= options["budget"]
    # SGD, because it moves a parameter as far as its gradient says. Behind a convolution comes batch norm, so the true
    # gradient of its bias is zero and the computed one is rounding; Adam would make steps of its full rate out of that,
    # in directions that depend on the machine.
    theirs = train("inductor", None, optimizer_of=torch.optim.SGD)
    for mine, other in zip(ours, theirs, strict=True):  # loss, random state, gradients, parameters, buffers
        for a, b in zip(mine, other, strict=True):
            torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=CLOSE, atol=CLOSE)


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(inductor, "get_cpp_compiler", none)
    with pytest.raises(lowtide.InputError, match="needs a C\\+\\+ compiler"):
        inductor.need_compiler(torch.device("cpu"))
