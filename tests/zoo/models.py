"""Small versions of the models that people train: a few layers, few channels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Case:
    """A model, two batches of the same shapes with other values, and a loss where the model has none."""

    model: nn.Module
    batch: Any
    other: Any
    loss: Callable[[nn.Module, Any], Any] | None = None


def classify(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of the model's output."""
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels)


def classify_in_bfloat16(model: nn.Module, batch: Any) -> Tensor:
    """The same under autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        return classify(model, batch)


def images(number: int, size: int, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Random pictures and labels."""
    return torch.randn(number, 3, size, size), torch.randint(0, classes, (number,))


def mlp() -> Case:
    """Three linear layers."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    first, second = ((torch.randn(4, 8), torch.randint(0, 5, (4,))) for _ in range(2))
    return Case(model, first, second, classify)


def convnet() -> Case:
    """BatchNorm, in-place ReLU, max-pool, dropout."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout2d(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return Case(model, images(4, 12), images(4, 12), classify)


def convnet_channels_last() -> Case:
    """The same in another memory format: strides decide which random number goes where."""
    case = convnet()
    batches = [(x.to(memory_format=torch.channels_last), y) for x, y in (case.batch, case.other)]
    return Case(case.model.to(memory_format=torch.channels_last), batches[0], batches[1], classify)  # type: ignore[call-overload]


class Encoder(nn.Module):
    """torch's own transformer encoder with dropout, behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.embed = nn.Embedding(50, 16)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: Tensor, padding: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        return F.cross_entropy(self.head(hidden.mean(1)), labels)


def encoder() -> Case:
    """A batch that is a sequence; the second one is padded."""

    def batch(keep: int) -> tuple[Tensor, Tensor, Tensor]:
        padding = torch.arange(6).expand(3, 6) >= keep
        return torch.randint(0, 50, (3, 6)), padding, torch.randint(0, 5, (3,))

    return Case(Encoder(), batch(6), batch(4))


def tokens(
    vocabulary: int, *, number: int = 2, length: int = 8, classes: int = 0
) -> Callable[[int], dict[str, Tensor]]:
    """Makes Hugging Face batches with a mask that keeps the first `keep` tokens."""

    def batch(keep: int) -> dict[str, Tensor]:
        ids = torch.randint(3, vocabulary, (number, length))
        mask = (torch.arange(length).expand(number, length) < keep).long()
        labels = torch.randint(0, classes, (number,)) if classes else ids.masked_fill(mask == 0, -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return batch


def _text(model: nn.Module, vocabulary: int = 60, classes: int = 0) -> Case:
    """Both batches are padded: models look at the mask, and a full one is another step."""
    batch = tokens(vocabulary, classes=classes)
    return Case(model, batch(7), batch(5))


def _full(case: Case) -> Case:
    """The same model on batches without padding."""
    batch = tokens(60)
    return Case(case.model, batch(8), batch(8))


def bert() -> Case:
    """Hugging Face BERT."""
    config = hf.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    return _text(hf.BertForSequenceClassification(config), classes=3)


def distilbert() -> Case:
    """Tied input and output embeddings."""
    config = hf.DistilBertConfig(
        vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=16
    )
    return _text(hf.DistilBertForMaskedLM(config))


def gpt2() -> Case:
    """Tied embeddings, Conv1D, causal mask."""
    config = hf.GPT2Config(
        vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return _text(hf.GPT2LMHeadModel(config))


def llama() -> Case:
    """Rotary embeddings, RMS norm, grouped queries."""
    config = hf.LlamaConfig(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, pad_token_id=0,
    )  # fmt: skip
    return _text(hf.LlamaForCausalLM(config))


def llama_full_mask() -> Case:
    """Looks at the mask, sees that it is full, and attends without it."""
    return _full(llama())


def qwen2() -> Case:
    """Rotary embeddings with tied weights."""
    config = hf.Qwen2Config(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=True,
    )  # fmt: skip
    return _text(hf.Qwen2ForCausalLM(config))


def t5() -> Case:
    """Encoder and decoder, tied embeddings, relative positions."""
    config = hf.T5Config(
        vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return _text(hf.T5ForConditionalGeneration(config))


def vit() -> Case:
    """Patches, class token, interpolation of none."""
    config = hf.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4,
        num_labels=3, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    first, second = ({"pixel_values": x, "labels": y} for x, y in (images(2, 16, 3), images(2, 16, 3)))
    return Case(hf.ViTForImageClassification(config), first, second)


def segformer() -> Case:
    """Channels-last dropout in the middle of a convolutional transformer."""
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2],
        num_attention_heads=[1, 2], mlp_ratios=[2, 2], hidden_dropout_prob=0.1, drop_path_rate=0.1,
        classifier_dropout_prob=0.1, decoder_hidden_size=8, num_labels=3,
    )  # fmt: skip
    batches = [
        {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 3, (2, 16, 16))} for _ in range(2)
    ]
    return Case(hf.SegformerForSemanticSegmentation(config), batches[0], batches[1])


def resnet() -> Case:
    """Hugging Face ResNet, bottleneck blocks."""
    config = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="bottleneck", num_labels=3
    )
    first, second = ({"pixel_values": x, "labels": y} for x, y in (images(2, 32, 3), images(2, 32, 3)))
    return Case(hf.ResNetForImageClassification(config), first, second)


class Homemade(nn.Module):
    """Not from a library: views, slices written in place, a frozen part, a replaced buffer, an unused parameter."""

    running: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(8))
        self.unused = nn.Parameter(torch.ones(3))
        self.leave = nn.Linear(8, 5)
        self.register_buffer("running", torch.zeros(8))

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        x = F.gelu(self.enter(x))
        self.running = 0.9 * self.running + 0.1 * x.detach().mean(0)
        left, right = x.chunk(2, dim=1)
        joined = torch.cat([right.tanh(), left * 2], dim=1)
        joined[:, 0] = 1.0
        joined = joined + torch.rand_like(joined) * 0.01
        y = self.frozen(joined).mul_(self.scale)
        y = F.dropout(y, 0.3, self.training)
        return self.leave(y.view(-1, 2, 4).transpose(1, 2).reshape(-1, 8))


def homemade() -> Case:
    """The model above."""
    first, second = ((torch.randn(4, 6), torch.randint(0, 5, (4,))) for _ in range(2))
    return Case(Homemade(), first, second, classify)


class Recurrent(nn.Module):
    """A two-layer LSTM with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        """Logits of the last step."""
        return self.head(self.lstm(x)[0][:, -1])


def lstm() -> Case:
    """The model above."""
    first, second = ((torch.randn(3, 4, 6), torch.randint(0, 5, (3,))) for _ in range(2))
    return Case(Recurrent(), first, second, classify)


class Gated(nn.Module):
    """A GRU: its gates are views that are overwritten in place."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 8, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Any:
        """Logits of the last step."""
        return self.head(self.gru(x.transpose(0, 1))[0][-1])


def gru() -> Case:
    """The model above."""
    first, second = ((torch.randn(4, 5, 6), torch.randint(0, 5, (4,))) for _ in range(2))
    return Case(Gated(), first, second, classify)


class Branches(nn.Module):
    """One gradient that two branches read: the sum in the first must not overwrite what the second still needs."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Linear(6, 8)
        self.late = nn.Linear(6, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        early, late = self.early(x).tanh(), self.late(x).tanh()
        square = late.pow(2)
        return self.head(late + early) + self.head(square)


def branches() -> Case:
    """The model above."""
    first, second = ((torch.randn(4, 6), torch.randint(0, 5, (4,))) for _ in range(2))
    return Case(Branches(), first, second, classify)


class Twice(nn.Module):
    """One weight used twice: under autocast its gradient is summed in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        return self.head(self.shared(F.silu(self.shared(x))))


def autocast() -> Case:
    """bfloat16 autocast inside the loss."""
    first, second = ((torch.randn(4, 8), torch.randint(0, 5, (4,))) for _ in range(2))
    return Case(Twice(), first, second, classify_in_bfloat16)


def autocast_convnet() -> Case:
    """bfloat16 autocast over convolutions and BatchNorm."""
    case = convnet()
    return Case(case.model, case.batch, case.other, classify_in_bfloat16)


class Crossed(nn.Module):
    """Where a trace goes astray: kernels that give other strides than their meta functions say, a derivative that looks
    at values, a slice that is overwritten and read under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.middle = nn.Linear(8, 8)
        self.turn = nn.Linear(8, 6)
        self.leave = nn.Linear(8, 4)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        h = self.norm(self.enter(x).transpose(1, 2)).transpose(1, 2)
        h = F.hardswish(self.middle(h).transpose(0, 1))
        half = h[..., :4]
        half.mul_(0.5)
        grid = F.affine_grid(self.turn(h.mean(0)).view(-1, 2, 3), [len(x), 1, 2, 2], align_corners=False)
        odds = self.leave(half @ half.transpose(1, 2) @ h).prod(0) + grid.flatten(1)[:, :4]
        return F.binary_cross_entropy_with_logits(odds, target)


def crossed() -> Case:
    """The model above."""
    first, second = ((torch.randn(3, 5, 6), torch.rand(3, 4)) for _ in range(2))
    return Case(Crossed(), first, second)


ZOO: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        mlp, convnet, convnet_channels_last, encoder, bert, distilbert, gpt2, llama,
        llama_full_mask, qwen2, t5, vit, segformer, resnet,
        homemade, lstm, gru, branches, crossed, autocast, autocast_convnet,
    )
}  # fmt: skip
