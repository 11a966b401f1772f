"""The backend by name and fresh for each test."""

from collections.abc import Iterator

import pytest
import torch

import lowtide
from lowtide.compiling.backend import backend
from lowtide.compiling.loop import loops


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    if "lowtide" not in torch._dynamo.list_backends(None):  # an installation without lowtide's entry points
        torch._dynamo.register_backend(backend, name="lowtide")
    torch._dynamo.reset()
    loops.clear()
    yield
    torch._dynamo.reset()
    loops.clear()
    lowtide.configure()
