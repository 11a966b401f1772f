"""What eager decides by looking at integers of the batch is decided in the same way for every batch."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import lowtide
from lowtide.errors import BatchMismatch, CaptureError
from tests.equality import Trained, differences, eager_step
from tests.zoo import often
from tests.zoo.models import llama, tokens


def train(model: nn.Module, batches: Sequence[Any], loss: Any = None, **options: Any) -> lowtide.TrainStep:
    """Train beside eager over `batches`; the first one is captured."""
    ours = Trained(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    theirs = ours.copy()
    step = lowtide.train_step(ours.model, ours.optimizer, batches[0], loss, **options)
    for k, batch in enumerate(batches):
        copied = copy.deepcopy(batch)
        torch.manual_seed(k)
        ours.loss = step(batch)
        eager_step(theirs, copied, loss, k)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == [], f"step {k}"
    return step


class Looks(nn.Module):
    """Looks at a mask and at lengths in all the ways that people do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layer = nn.Linear(8, 4)

    def forward(self, ids: Tensor, mask: Tensor, lengths: Tensor) -> Any:
        """A scalar."""
        h = self.layer(self.embed(ids))
        h = h * 2 if mask.all() else h * mask[..., None]
        longest = int(lengths.max())
        h, mask = h[:, :longest], mask[:, :longest]
        parts = h[mask.bool()].split(mask.sum(1).tolist())
        again = torch.repeat_interleave(h.sum(1), lengths, dim=0)
        picked = torch.masked_select(h[..., 0], mask == 1)
        rows, columns = torch.where(mask == 1)
        return sum(p.pow(2).mean() for p in parts) + again.mean() + picked.sum() + h[rows, columns].mean()


def batch_of(*keep: int) -> dict[str, Tensor]:
    lengths = torch.tensor(keep)
    mask = (torch.arange(6) < lengths[:, None]).long()
    return {"ids": torch.randint(0, 10, (len(keep), 6)), "mask": mask, "lengths": lengths}


def test_each_outcome_has_its_own_graph() -> None:
    full, padded, other = batch_of(6, 6, 6), batch_of(6, 3, 2), batch_of(5, 2, 1)
    step = train(Looks(), [full, padded, full, batch_of(6, 3, 2), other, batch_of(6, 6, 6)], lambda m, b: m(**b))
    assert len(step._prepared) == 3


@pytest.mark.parametrize("name", often(["Llama", "Bert", "GPT2", "Mistral", "Qwen2"], 2))
def test_masks_of_transformers_full_padded_and_back(name: str) -> None:
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
    more = {"intermediate_size": 32, "num_key_value_heads": 2} if name in ("Llama", "Mistral", "Qwen2") else {}
    config = getattr(hf, f"{name}Config")(**sizes, **more, max_position_embeddings=16, pad_token_id=0)
    kind = "ForMaskedLM" if name == "Bert" else "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    batch = tokens(60)
    step = train(getattr(hf, name + kind)(config), [batch(8), batch(5), batch(8), batch(6)])
    assert len(step._prepared) == 2


def test_a_full_mask_is_attended_without_as_eager_does() -> None:
    """On machines without AVX-512 the gradients of both ways differ in the last bits."""
    masked = {}
    for keep in (8, 5):
        case = llama()
        graph = lowtide.capture(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1), tokens(60)(keep))
        attention = [op.node for op in graph.ops if "scaled_dot_product" in op.op and op.phase == "forward"]
        masked[keep] = [node.kwargs.get("attn_mask") is not None for node in attention]
    assert masked == {8: [False, False], 5: [True, True]}


def test_a_captured_graph_is_captured_anew_for_another_outcome() -> None:
    model = Looks()
    graph = lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), batch_of(6, 6, 6), lambda m, b: m(**b))
    graph(batch_of(6, 3, 2))
    assert graph.siblings is not None
    assert len(graph.siblings.known) == 2
    graph(batch_of(6, 3, 2))
    graph(batch_of(6, 6, 6))
    assert len(graph.siblings.known) == 2


def test_changes_in_place_are_followed() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor, labels: Tensor) -> Any:
            seen = labels.clone()
            seen[seen < 0] = 0
            seen.add_(1)
            return self.layer(x).mean() * (2.0 if seen.sum() > 5 else 1.0)

    x = torch.randn(3, 4)
    train(InPlace(), [{"x": x, "labels": torch.tensor(v)} for v in ([1, 1, -1], [2, 2, 2], [-5, -5, -5])])


def test_what_is_mixed_with_unknown_values_is_not_known() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor, labels: Tensor) -> Any:
            mixed = labels.clone()
            mixed[x[:, 0] > 0] = 7
            return self.layer(x).mean() * (2.0 if mixed.sum() > 5 else 1.0)

    model = Mixed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(CaptureError, match="read as a Python number"):
        lowtide.capture(model, optimizer, {"x": torch.randn(3, 4), "labels": torch.tensor([1, 2, 3])})


def test_leaves_that_share_their_bytes_are_another_form() -> None:
    model = nn.Embedding(10, 10)

    def loss(m: nn.Module, b: dict[str, Tensor]) -> Any:
        return nn.functional.cross_entropy(m(b["input_ids"]), b["labels"])

    ids = torch.randint(0, 10, (5,))
    one, two = {"input_ids": ids, "labels": ids}, {"input_ids": ids, "labels": torch.randint(0, 10, (5,))}
    step = train(model, [one, two, one], loss)
    assert len(step._prepared) == 2
    graph = lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), one, loss)
    with pytest.raises(BatchMismatch, match="share their storage"):
        graph(two)


def test_nothing_is_asked_where_nothing_is_looked_at() -> None:
    model = nn.Linear(4, 3)
    graph = lowtide.capture(
        model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 4), lambda m, b: m(b).sum()
    )
    assert graph.conditions.questions == ()


@pytest.mark.parametrize("whole", [True, False])
def test_ctc_loss_by_lengths_of_the_batch(whole: bool) -> None:
    """The longest target decides how much the kernel keeps for backward; other lengths need no other graph."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, targets, frames, lengths = batch
        return nn.functional.ctc_loss(model(x).log_softmax(-1).transpose(0, 1), targets, frames, lengths)

    def batch(*lengths: int) -> Any:
        targets = torch.randint(1, 6, (len(lengths), 5) if whole else (sum(lengths),))
        return torch.randn(len(lengths), 12, 8), targets, torch.tensor([12, 11, 10]), torch.tensor(lengths)

    step = train(nn.Linear(8, 6), [batch(3, 2, 1), batch(1, 3, 2), batch(1, 1, 4), batch(3, 2, 2)], loss)
    assert len(step._prepared) == (2 if whole else 3)  # as long as 3 and 4; targets in one row are 6 or 7
