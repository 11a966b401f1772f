"""The reference models, from configurations, random weights, nothing downloaded."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.models.training import ModelOptions, Training

MLP_SIZES = (512, 1024, 1024, 10)


def _class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def mlp(batch_size: int, options: ModelOptions) -> Training:
    """Three linear layers with ReLU between them."""
    one, two, three, classes = MLP_SIZES
    model = nn.Sequential(nn.Linear(one, two), nn.ReLU(), nn.Linear(two, three), nn.ReLU(), nn.Linear(three, classes))
    batch = (torch.randn(batch_size, one), torch.randint(classes, (batch_size,)))
    return Training("mlp", model, batch, _class_loss)


def resnet152(batch_size: int, options: ModelOptions) -> Training:
    """ResNet-152, 60.19 M parameters, as torchvision's."""
    need("models", "resnet152")
    from transformers import ResNetConfig, ResNetForImageClassification

    size = options.image_size or 224
    if size < 32:
        raise InputError(f"resnet152 halves the image five times: --image-size must be at least 32, not {size}")
    config = ResNetConfig(
        depths=[3, 8, 36, 3],
        layer_type="bottleneck",
        hidden_sizes=[256, 512, 1024, 2048],
        embedding_size=64,
        num_labels=1000,
    )
    batch = {"pixel_values": torch.randn(batch_size, 3, size, size), "labels": torch.randint(1000, (batch_size,))}
    return Training("resnet152", ResNetForImageClassification(config), batch)


def bert_base(batch_size: int, options: ModelOptions) -> Training:
    """BERT-Base with a classification head, 109.5 M parameters."""
    need("models", "bert-base")
    from transformers import BertConfig, BertForSequenceClassification

    dropout = (
        {}
        if options.dropout is None
        else {
            "hidden_dropout_prob": options.dropout,
            "attention_probs_dropout_prob": options.dropout,
        }
    )
    config = BertConfig(**dropout)
    length = _length(options, "bert-base", 1, config.max_position_embeddings)
    batch = {
        "input_ids": torch.randint(config.vocab_size, (batch_size, length)),
        "attention_mask": torch.ones(batch_size, length, dtype=torch.int64),
        "labels": torch.randint(config.num_labels, (batch_size,)),
    }
    return Training("bert-base", BertForSequenceClassification(config), batch)


def gpt2(batch_size: int, options: ModelOptions) -> Training:
    """GPT-2 small with its language-model head, 124.4 M parameters."""
    need("models", "gpt2")
    from transformers import GPT2Config, GPT2LMHeadModel

    dropout = (
        {}
        if options.dropout is None
        else {
            "resid_pdrop": options.dropout,
            "embd_pdrop": options.dropout,
            "attn_pdrop": options.dropout,
        }
    )
    config = GPT2Config(use_cache=False, loss_type="ForCausalLM", **dropout)
    length = _length(options, "gpt2", 2, config.n_positions)
    tokens = torch.randint(config.vocab_size, (batch_size, length))
    return Training("gpt2", GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens.clone()})


def vit_base(batch_size: int, options: ModelOptions) -> Training:
    """ViT-Base with patches of 16 pixels, 86.6 M parameters."""
    need("models", "vit-base")
    from transformers import ViTConfig, ViTForImageClassification

    size = options.image_size or 224
    if size % 16 or size < 16:
        raise InputError(f"vit-base cuts the image into patches of 16: --image-size must be a multiple, not {size}")
    dropout = options.dropout or 0.0
    config = ViTConfig(
        image_size=size, num_labels=1000, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    batch = {"pixel_values": torch.randn(batch_size, 3, size, size), "labels": torch.randint(1000, (batch_size,))}
    return Training("vit-base", ViTForImageClassification(config), batch)


class UNet(nn.Module):
    """Down four times and up again, each level joined with the one that it came from."""

    def __init__(self, width: int = 32, classes: int = 8) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in reversed(sizes[:-1]))
        self.up = nn.ModuleList(_twice(2 * a, a) for a in reversed(sizes[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every class at every pixel."""
        levels = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            levels.append(x)
        for grow, block, joined in zip(self.grow, self.up, reversed(levels[:-1]), strict=True):
            x = block(torch.cat([joined, grow(x)], 1))
        scores: Tensor = self.head(x)
        return scores


class UNetBlock(nn.Sequential):
    """Two convolutions, which people checkpoint together."""


def _twice(before: int, after: int) -> UNetBlock:
    layers = [
        layer
        for channels in (before, after)
        for layer in (nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))
    ]
    return UNetBlock(*layers)


def unet(batch_size: int, options: ModelOptions) -> Training:
    """A U-Net for segmentation, 7.8 M parameters."""
    size = options.image_size or 128
    if size % 16 or size < 16:
        raise InputError(f"unet halves the image four times: --image-size must be a multiple of 16, not {size}")
    batch = (torch.randn(batch_size, 3, size, size), torch.randint(8, (batch_size, size, size)))
    return Training("unet", UNet(), batch, _class_loss)


def _length(options: ModelOptions, model: str, least: int, most: int) -> int:
    length = options.seq_len or 128
    if not least <= length <= most:
        raise InputError(f"{model} takes a --seq-len from {least} to {most}, not {length}")
    return length


@dataclass(frozen=True)
class Reference:
    """A reference model and the options that it has."""

    make: Callable[[int, ModelOptions], Training]
    options: tuple[str, ...]


REFERENCES = {
    "mlp": Reference(mlp, ()),
    "resnet152": Reference(resnet152, ("image_size",)),
    "bert-base": Reference(bert_base, ("seq_len", "dropout")),
    "gpt2": Reference(gpt2, ("seq_len", "dropout")),
    "vit-base": Reference(vit_base, ("image_size", "dropout")),
    "unet": Reference(unet, ("image_size",)),
}
