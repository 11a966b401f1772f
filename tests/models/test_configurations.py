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


TINY: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": small(),
    "BertForTokenClassification": small(num_labels=5),
    "BertForQuestionAnswering": small(),
    "RobertaForMaskedLM": small(model_type="roberta", max_position_embeddings=34, pad_token_id=1),
    "GPT2LMHeadModel": {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50},
    "T5ForConditionalGeneration": {
        "model_type": "t5", "d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 50,
        "decoder_start_token_id": 0,
    },
    "ResNetForImageClassification": {"model_type": "resnet", "hidden_sizes": [8], "depths": [1], "embedding_size": 8},
    "ViTForImageClassification": {
        "model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "image_size": [32, 48],
    },
}  # fmt: skip


@pytest.mark.parametrize("architecture", TINY)
def test_each_task_gets_a_batch_that_trains(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY[architecture], "architectures": [architecture]}))
    training = build(str(path), 2)
    assert training.model(**training.batch).loss.isfinite()
    if architecture == "RobertaForMaskedLM":  # two places of its table are for padding
        assert training.batch["input_ids"].shape == (2, 32)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(small(architectures=["BertModel"])), "no batch is known for BertModel: write an architecture"),
        (json.dumps({"model_type": "clip", "architectures": ["CLIPModel"]}), "no batch is known for CLIPModel"),
        (json.dumps(small(num_attention_heads=3)), "BertForSequenceClassification cannot be built: ValueError"),
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
