import pytest
import torch

from lowtide.errors import InputError
from lowtide.models import ModelOptions, build


def test_the_mlp_has_three_linear_layers() -> None:
    training = build("mlp", 4)
    assert sum(isinstance(module, torch.nn.Linear) for module in training.model.modules()) == 3
    assert training.loss is not None
    assert training.loss(training.model, training.batch).shape == ()


def test_the_seed_decides_weights_and_batch() -> None:
    one, same, other = build("mlp", 4, seed=1), build("mlp", 4, seed=1), build("mlp", 4, seed=2)
    assert torch.equal(one.batch[0], same.batch[0])
    assert not torch.equal(one.batch[0], other.batch[0])
    weights = [next(t.model.parameters()) for t in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("name", "options", "millions", "shape"),
    [
        ("resnet152", ModelOptions(image_size=64), 60.19, (2, 3, 64, 64)),
        ("bert-base", ModelOptions(seq_len=16, dropout=0.0), 109.48, (2, 16)),
        ("gpt2", ModelOptions(seq_len=16, dropout=0.0), 124.44, (2, 16)),
        ("vit-base", ModelOptions(), 86.57, (2, 3, 224, 224)),
        ("unet", ModelOptions(image_size=32), 7.77, (2, 3, 32, 32)),
    ],
)
def test_reference_models_are_the_published_ones(
    name: str, options: ModelOptions, millions: float, shape: tuple[int, ...]
) -> None:
    with torch.device("meta"):
        training = build(name, 2, options)
    assert sum(p.numel() for p in training.model.parameters()) / 1e6 == pytest.approx(millions, abs=0.01)
    values = training.batch.values() if isinstance(training.batch, dict) else training.batch
    assert next(iter(values)).shape == shape
    if options.dropout is not None:
        assert {m.p for m in training.model.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}


@pytest.mark.parametrize(
    ("name", "size", "options", "message"),
    [
        ("bert", 1, {}, "unknown model 'bert': write one of mlp, resnet152, bert-base, gpt2"),
        ("mlp", 0, {}, "batch size must be at least 1"),
        ("mlp", -3, {}, "not -3"),
        ("mlp", 2**31, {}, "below 2"),
        ("mlp", 1, {"dropout": 0.1}, "--dropout does not apply to mlp"),
        ("bert-base", 1, {"image_size": 64}, "--image-size does not apply to bert-base"),
        ("vit-base", 1, {"image_size": 100}, "patches of 16"),
        ("unet", 1, {"image_size": 100}, "halves the image four times"),
        ("resnet152", 1, {"seq_len": 64}, "--seq-len does not apply to resnet152"),
        ("resnet152", 1, {"image_size": 16}, "at least 32, not 16"),
        ("bert-base", 1, {"seq_len": 513}, "from 1 to 512, not 513"),
        ("gpt2", 1, {"seq_len": 1}, "from 2 to 1024, not 1"),
        ("gpt2", 1, {"seq_len": 0}, "sequence length must be at least 1"),
        ("gpt2", 1, {"dropout": 1.0}, "not 1.0"),
        ("gpt2", 1, {"dropout": float("nan")}, "not nan"),
    ],
)
def test_one_clear_sentence(name: str, size: int, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name, size, ModelOptions(**options))  # type: ignore[arg-type]


def test_a_seed_out_of_range() -> None:
    with pytest.raises(InputError, match="seed"):
        build("mlp", 1, seed=-1)
