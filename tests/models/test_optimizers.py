import pytest
import torch

from lowtide.errors import InputError
from lowtide.models import OPTIMIZERS, make_optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_makes_a_step(name: str) -> None:
    model = torch.nn.Linear(2, 1)
    before = model.weight.detach().clone()
    optimizer = make_optimizer(name, model, 0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight)


def test_one_clear_sentence() -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(InputError, match="unknown optimizer 'lbfgs': write one of sgd, momentum"):
        make_optimizer("lbfgs", model, 0.1)
    for lr in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="learning rate"):
            make_optimizer("adam", model, lr)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable parameter"):
        make_optimizer("adam", model, 0.1)
