"""Every test starts from the same seed, on one thread where it matters not."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers

transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for every test, whatever ran before."""
    torch.manual_seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Two test processes on two cores: one thread each, or they wait for each other."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)
