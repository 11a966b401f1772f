"""Every test starts from the same seed, on one thread where it matters not."""

import gc
import os
from collections.abc import Iterator
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers

from lowtide.profiling import runs

transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True, scope="session")
def young_garbage() -> Iterator[None]:
    """Before it measures, lowtide collects garbage: here the young alone. A test process holds half a million
    objects of libraries, and to look at all of them takes longer than most steps."""
    with pytest.MonkeyPatch.context() as patch:
        young = SimpleNamespace(collect=lambda: gc.collect(1), isenabled=gc.isenabled)
        patch.setattr(runs, "gc", young)
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for every test, whatever ran before."""
    torch.manual_seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Two test processes on two cores: one thread each, or they wait for each other."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)
