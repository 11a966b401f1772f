"""Models of transformers by name or by their own `config.json`, with random weights, or none on the meta device."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lowtide.errors import InputError, shortened, shown
from lowtide.extras import need
from lowtide.models.training import ModelOptions, Training

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
KNOWN: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "llama-3.1-70b": {
        **_LLAMA,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "mistral-7b": {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "gpt2-xl": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 1600,
        "n_layer": 48,
        "n_head": 25,
        "loss_type": "ForCausalLM",
    },
    "vit-l": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "num_labels": 1000,
    },
}
"""From the published configurations; a test counts their parameters."""


_TOKENS, _SAMPLES, _SPANS, _IMAGES = "tokens", "samples", "spans", "images"
_TASKS = {
    _TOKENS: ("CausalLM", "LMHeadModel", "MaskedLM", "ConditionalGeneration", "TokenClassification"),
    _SAMPLES: ("SequenceClassification",),
    _SPANS: ("QuestionAnswering",),
    _IMAGES: ("ImageClassification",),
}
"""By what the labels are of: the ends of architectures' names."""


def is_configuration(model: str) -> bool:
    """Is it one of these, or a file of that kind?"""
    return model in KNOWN or model.endswith(".json")


def from_configuration(model: str, batch_size: int, options: ModelOptions) -> Training:
    """The model and a batch for it."""
    return of_configuration(model, KNOWN[model] if model in KNOWN else _read(Path(model)), batch_size, options)


def of_configuration(model: str, facts: dict[str, Any], batch_size: int, options: ModelOptions) -> Training:
    """The model of such facts, which is called `model`, and a batch for it."""
    need("models", model)
    import transformers

    architecture = str((facts.get("architectures") or [""])[0])
    kind = getattr(transformers, architecture, None)
    if kind is None or facts.get("model_type") not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{shown(model)}: transformers {transformers.__version__} knows no architecture {shown(architecture)} of "
            f"the type {shown(str(facts.get('model_type')))}: write both as transformers names them"
        )
    if options.dropout is not None:
        raise InputError(f"--dropout does not apply to {model}, whose configuration decides it: leave it out")
    task = next((task for task, ends in _TASKS.items() if architecture.endswith(ends)), None)
    taken = "pixel_values" if task == _IMAGES else "input_ids"
    if task is None or kind.main_input_name != taken or {"vision_config", "audio_config"} & set(facts):
        raise InputError(
            f"{shown(model)}: no batch is known for {architecture}: write an architecture of tokens or of images whose "
            f"name ends in one of {', '.join(end for ends in _TASKS.values() for end in ends)}, or "
            "path/to/file.py:function, which makes model and batch"
        )
    if architecture.endswith("LMHeadModel"):
        facts = {"loss_type": "ForCausalLM", **facts}
    try:
        config = transformers.AutoConfig.for_model(**{**facts, "use_cache": False})
        made = kind(config)
    except NotImplementedError:
        raise
    except Exception as error:
        said = shortened(" ".join(str(error).split()), 300)
        raise InputError(f"{shown(model)}: {architecture} cannot be built: {type(error).__name__}: {said}") from error
    name = Path(model).parent.name or model if model.endswith(".json") else model
    make = _images if task == _IMAGES else _tokens
    return Training(name, made, make(model, made, task, batch_size, options))


def _images(model: str, made: Any, task: str, batch_size: int, options: ModelOptions) -> dict[str, Tensor]:
    config = made.config
    if options.seq_len is not None:
        raise InputError(f"--seq-len does not apply to {model}, which takes images: leave it out")
    size = options.image_size or getattr(config, "image_size", None) or 224
    sides = size if isinstance(size, list | tuple) else (size, size)
    return {
        "pixel_values": torch.randn(batch_size, getattr(config, "num_channels", 3), *sides),
        "labels": torch.randint(config.num_labels, (batch_size,)),
    }


def _tokens(model: str, made: Any, task: str, batch_size: int, options: ModelOptions) -> dict[str, Tensor]:
    if options.image_size is not None:
        raise InputError(f"--image-size does not apply to {model}, which takes tokens: leave it out")
    config = made.config
    most = _positions(made)
    length = options.seq_len or min(most, 2048)
    if not 2 <= length <= most:
        raise InputError(f"{model} takes a --seq-len from 2 to {most}, not {length}")
    tokens = torch.randint(config.vocab_size, (batch_size, length))
    if task == _SPANS:
        places = [torch.randint(length, (batch_size,)) for _ in range(2)]
        return {"input_ids": tokens, "start_positions": places[0], "end_positions": places[1]}
    if task == _SAMPLES:
        return {"input_ids": tokens, "labels": torch.randint(config.num_labels, (batch_size,))}
    classes = made.get_output_embeddings() is None
    return {"input_ids": tokens, "labels": torch.randint_like(tokens, config.num_labels) if classes else tokens.clone()}


def _positions(made: Any) -> int:
    """The longest sample. A table of positions with a place for padding begins behind that place, as RoBERTa's does."""
    config = made.config
    most: int = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 1 << 20
    tables = [table for name, table in made.named_modules() if name.endswith("position_embeddings")]
    padded = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    return most - max(padded, default=0)


def _read(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration {shown(str(path))}: {error}") from None
    if not isinstance(facts, dict):
        raise InputError(f"{shown(str(path))} is no configuration: it must be a JSON object, as transformers writes it")
    return facts
