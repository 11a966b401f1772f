"""The models that ship by name are those that were published, and a user's config.json is read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.errors import InputError
from lowtide.models import build
from lowtide.models.configurations import KNOWN, from_configuration
from lowtide.models.training import ModelOptions

PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-7b": 7_615_616_512,
    "mistral-7b": 7_241_732_096,
    "gpt2-xl": 1_557_611_200,
    "vit-l": 304_326_632,
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_published_numbers_of_parameters(name: str) -> None:
    with torch.device("meta"):
        model = from_configuration(name, 1, ModelOptions()).model
    assert sum(p.numel() for p in {id(p): p for p in model.parameters()}.values()) == PUBLISHED[name]


def small(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 50,
        **changes,
    }


def test_a_configuration_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(small()))
    training = build(str(path), 3, ModelOptions(seq_len=7), seed=1)
    assert training.name == "tiny"
    assert training.batch["input_ids"].shape == (3, 7)
    assert training.model(**training.batch).loss.isfinite()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot read the configuration"),
        ("[1]", "must be a JSON object"),
        (json.dumps(small(architectures=["Nobody"])), "knows no architecture 'Nobody'"),
        (json.dumps(small(model_type="nobody")), "of the type 'nobody'"),
        (json.dumps({}), "knows no architecture"),
    ],
)
def test_bad_configurations_get_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        from_configuration(str(path), 1, ModelOptions())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("vit-l", ModelOptions(seq_len=8), "--seq-len does not apply to vit-l"),
        ("gpt2-xl", ModelOptions(image_size=8), "--image-size does not apply to gpt2-xl"),
        ("gpt2-xl", ModelOptions(dropout=0.1), "--dropout does not apply"),
        ("gpt2-xl", ModelOptions(seq_len=5000), "from 2 to 1024, not 5000"),
    ],
)
def test_options_that_do_not_apply(name: str, options: ModelOptions, words: str) -> None:
    with torch.device("meta"), pytest.raises(InputError, match=words):
        from_configuration(name, 1, options)
