"""The backend by name and fresh for each test, as for the backend's own tests."""

from tests.compiling.conftest import _fresh_compiler  # noqa: F401 - a fixture for all tests here
