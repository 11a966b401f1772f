"""When two batches have the same form."""

import pytest
import torch
from torch import nn

from lowtide.graph.batch_form import BatchForm

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (NAN, float("nan"), True),
        (torch.Size([1]), torch.Size([1]), True),
        (torch.ones(2), torch.zeros(2), True),
        (torch.ones(2), nn.Parameter(torch.ones(2), requires_grad=False), False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
    ],
)
def test_constants_by_type_and_value(one: object, other: object, alike: bool) -> None:
    assert (BatchForm.of({"x": one}) == BatchForm.of({"x": other})) is alike


def test_nan_fits_its_own_form() -> None:
    batch = {"x": torch.ones(2), "scale": NAN}
    assert len(BatchForm.of(batch).tensors({"x": torch.ones(2), "scale": float("nan")})) == 1
