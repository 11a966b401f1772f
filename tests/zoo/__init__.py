"""Small models of many kinds, for capture and profile tests."""

from tests.zoo.models import ZOO, Case

__all__ = ["ZOO", "Case"]
