"""What an op does besides computing."""

import torch

from lowtide.kernels.effects import is_random

attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def test_attention_draws_only_where_it_drops_something() -> None:
    q = torch.ones(1, 1, 4, 4)
    assert not is_random(attention, (q, q, q), {})
    assert not is_random(attention, (q, q, q, 0.0, True), {"scale": 0.5})
    assert is_random(attention, (q, q, q, 0.1), {})
    assert is_random(torch.ops.aten._scaled_dot_product_efficient_attention.default, (q, q, q, None, True, 0.1))
    assert not is_random(torch.ops.aten._scaled_dot_product_efficient_attention.default, (q, q, q, None, True, 0.0))


def test_other_random_ops_always_draw() -> None:
    assert is_random(torch.ops.aten.native_dropout.default, (torch.ones(2), 0.0, True), {})
    assert not is_random(torch.ops.aten.add.Tensor, (torch.ones(2), 1), {})
