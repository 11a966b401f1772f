"""Recurrence, attention and embeddings."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.fuzz.kinds import Function, Pick, Shape, function, layer

WORDS = 11
"""Tokens of a batch are below this."""


class Recurrent(nn.Module):
    """The outputs of an LSTM, GRU or RNN, with the last state added."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, F) to (N, T, H)."""
        outputs, state = self.inner(x)
        last = state[0] if isinstance(state, tuple) else state
        return outputs + last.mean() * 0.1  # type: ignore[no-any-return]


@layer(3, weight=20)
def recurrent(shape: Shape, pick: Pick) -> nn.Module:
    which = pick("which", nn.LSTM, nn.GRU, nn.RNN)
    layers = pick("layers", 1, 2)
    return Recurrent(
        which(
            shape[-1],
            pick("hidden", 4, 6),
            layers,
            batch_first=True,
            bidirectional=pick("both", False, True),
            dropout=pick("dropout", 0.0, 0.2) if layers > 1 else 0.0,
        )
    )


class Cells(nn.Module):
    """A cell in a Python loop over time."""

    def __init__(self, cell: nn.Module, hidden: int) -> None:
        super().__init__()
        self.cell, self.hidden = cell, hidden

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, F) to (N, T, H)."""
        state = x.new_zeros(x.shape[0], self.hidden)
        memory, outputs = state, []
        for part in x.unbind(1):
            if isinstance(self.cell, nn.LSTMCell):
                state, memory = self.cell(part, (state, memory))
            else:
                state = self.cell(part, state)
            outputs.append(state)
        return torch.stack(outputs, 1)


@layer(3)
def cells(shape: Shape, pick: Pick) -> nn.Module:
    return Cells(pick("which", nn.LSTMCell, nn.GRUCell, nn.RNNCell)(shape[-1], 5), 5)


class SelfAttention(nn.Module):
    """torch's MultiheadAttention of x with itself."""

    def __init__(self, features: int, heads: int, dropout: float, causal: bool, weights: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(features, heads, dropout, batch_first=True)
        self.causal, self.weights = causal, weights

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, F) to (N, T, F)."""
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        out, _ = self.inner(x, x, x, attn_mask=mask, need_weights=self.weights)
        return out  # type: ignore[no-any-return]


@layer(3)
def multihead_attention(shape: Shape, pick: Pick) -> nn.Module:
    heads = 2 if shape[-1] % 2 == 0 else 1
    return SelfAttention(
        shape[-1], heads, pick("dropout", 0.0, 0.2), pick("causal", False, True), pick("w", True, False)
    )


@layer(3)
def transformer_encoder(shape: Shape, pick: Pick) -> nn.Module:
    return nn.TransformerEncoderLayer(
        shape[-1],
        2 if shape[-1] % 2 == 0 else 1,
        8,
        dropout=pick("dropout", 0.0, 0.1),
        activation=pick("activation", "relu", "gelu"),
        batch_first=True,
        norm_first=pick("norm_first", False, True),
    )


class Decoder(nn.Module):
    """A decoder layer that attends to its own input."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(features, 1, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, F) to (N, T, F)."""
        return self.inner(x, x.flip(1))  # type: ignore[no-any-return]


@layer(3)
def transformer_decoder(shape: Shape, pick: Pick) -> nn.Module:
    return Decoder(shape[-1])


@function(3, weight=15)
def dot_product_attention(shape: Shape, pick: Pick) -> Function:
    mask, p = pick("mask", "none", "causal", "bool", "float"), pick("p", 0.0, 0.0, 0.2)

    def call(x: Tensor) -> Tensor:
        length = x.shape[1]
        lower = torch.ones(length, length, dtype=torch.bool).tril()
        given = {"bool": lower, "float": torch.zeros(length, length, dtype=x.dtype).masked_fill(~lower, -9.0)}.get(mask)
        heads = x.unsqueeze(1)
        out = F.scaled_dot_product_attention(heads, heads, heads, given, p, is_causal=mask == "causal")
        return out.squeeze(1)

    return call


class Masked(nn.Module):
    """Means over time without padding; looks at the mask as Hugging Face's models do."""

    takes_batch = True

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.looks = looks

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(N, T, F) less its mean over what the mask leaves."""
        if self.looks and bool(mask.all()):
            return x - x.mean(1, keepdim=True)
        kept = mask[:, : x.shape[1]].to(x.dtype).unsqueeze(-1)
        if kept.shape[1] < x.shape[1]:
            kept = F.pad(kept, (0, 0, 0, x.shape[1] - kept.shape[1]), value=1.0)
        return x - (x * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)


@layer(3)
def masked_mean(shape: Shape, pick: Pick) -> nn.Module:
    return Masked(pick("looks", False, True))


class Bags(nn.Module):
    """Bins its input and looks the bins up as one bag per sample."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.inner = nn.EmbeddingBag(WORDS, 6, mode=mode)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) to (N, 6)."""
        return self.inner(_bins(x)) + x.mean(1, keepdim=True)  # type: ignore[no-any-return]


def _bins(x: Tensor) -> Tensor:
    return (x.detach().sigmoid() * WORDS).long().clamp(0, WORDS - 1)


@layer(2)
def embedding_bag(shape: Shape, pick: Pick) -> nn.Module:
    return Bags(pick("mode", "sum", "mean", "max"))


class Looked(nn.Module):
    """Bins its input and adds what an embedding has for the bins."""

    def __init__(self, inner: nn.Embedding) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) to (N, F, E)."""
        return self.inner(_bins(x)) * x.unsqueeze(-1)  # type: ignore[no-any-return]


@layer(2, 3)
def embedding(shape: Shape, pick: Pick) -> nn.Module:
    return Looked(
        nn.Embedding(
            WORDS,
            4,
            padding_idx=pick("padding", None, 0),
            max_norm=pick("max_norm", None, None, None, 1.0),
            scale_grad_by_freq=pick("freq", False, False, True),
            sparse=pick("sparse", False, False, False, False, True),
        )
    )


@layer(2)
def one_hot(shape: Shape, pick: Pick) -> nn.Module:
    return OneHot()


class OneHot(nn.Module):
    """Bins its input, one-hot, times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, 5) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) to (N, F, 5)."""
        return F.one_hot(_bins(x), WORDS).to(x.dtype) @ self.weight + x.unsqueeze(-1)
