"""The backend by name and fresh for each test, as for the backend's own tests.

Accelerate starts anew as well: its state is the process's, and a second Accelerator passes over its dynamo plugin.
"""

from collections.abc import Iterator

import pytest
from accelerate.state import AcceleratorState, GradientState

from tests.compiling.conftest import _fresh_compiler  # noqa: F401 - a fixture for all tests here


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
