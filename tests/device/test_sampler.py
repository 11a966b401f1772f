from time import sleep

import pytest
import torch

from lowtide.device import sampler as module
from lowtide.device.sampler import Sampler
from lowtide.device.shim import compiler
from lowtide.errors import InputError

MIB = 2**20


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler: there is no allocator shim to sample")
def test_what_is_taken_and_given_back_is_seen() -> None:
    sampler = Sampler("cpu", 0.5)
    for _ in range(2):  # it can be used again
        with sampler:
            held = torch.empty(8 * MIB, dtype=torch.uint8)
            sleep(0.02)
            del held
        times, sizes = zip(*sampler.samples, strict=True)
        assert list(times) == sorted(times)
        assert sizes[-1] == sizes[0]
        assert max(sizes) - sizes[0] == 8 * MIB


def test_without_a_compiler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compiler", lambda: None)
    with pytest.raises(InputError, match=r"install g\+\+"):
        Sampler("cpu", 1.0)
