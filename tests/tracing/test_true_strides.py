"""Strides that torch's meta functions get wrong, against the kernels' own."""

import itertools

import pytest
import torch

from lowtide.tracing import true_strides

LAYOUTS = [(40, 8, 1), (40, 1, 5), (5, 1, 0), (0, 8, 1), (0, 1, 5), (8, 0, 1), (1, 0, 4)]
"""Of tensors of 4 x 5 x 8: contiguous, transposed, and expanded along each dimension."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_elementwise_ops_in_half_precision_with_expanded_arguments(dtype: torch.dtype) -> None:
    """Their meta functions cast to float32 first, which lays out anew what is expanded."""
    ops = [op for op, rule in true_strides._RULES.items() if rule is true_strides._in_half]
    assert len(ops) > 10
    for op, first, second in itertools.product(ops, LAYOUTS, LAYOUTS):
        a, b = (torch.ones(400, dtype=dtype).as_strided((4, 5, 8), layout) for layout in (first, second))
        assert op(a, b).stride() == true_strides._in_half(((4, 5, 8), (0, 0, 0)), (a, b)), (op, first, second)
