"""Tensor parallel on a process group that is not there: bytes of one rank by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

import lowtide
from lowtide.fitting.devices import find_device
from lowtide.fitting.fit import Setting
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.planning.simulate import simulate
from lowtide.records.vocabulary import Role

WIDTH, INNER, BLOCKS, SAMPLES, RANKS = 16, 64, 3, 8, 4
PLANS: dict[str, dict[str, Any]] = {
    "words": {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"},
    "styles": {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()},
}


class Net(nn.Module):
    def __init__(self, plan: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"up": nn.Linear(WIDTH, INNER), "down": nn.Linear(INNER, WIDTH)}) for _ in range(BLOCKS)
        )
        self.tp_plan = plan

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = x + block["down"](block["up"](x).relu())  # type: ignore[index]
        return x.mean()


def drawn(plan: Any, tensor: int = RANKS) -> Sketch:
    with torch.device("meta"):
        model, x = Net(plan), torch.ones(SAMPLES, WIDTH)
    make = lambda m: torch.optim.AdamW(m.parameters(), fused=True)  # noqa: E731
    return sketch(model, make, x, None, find_device("h100").rates, gpu=True, tensor=tensor)


@pytest.mark.parametrize("plan", PLANS)
def test_a_rank_holds_its_part_of_each_layer(plan: str) -> None:
    step = drawn(PLANS[plan])
    storages = step.plain.graph.storages
    held = {s.name.replace(".parametrizations", "").replace(".original", ""): s.bytes for s in storages}
    assert held["blocks.1.up.weight"] == INNER * WIDTH * 4 // RANKS
    assert held["blocks.1.up.bias"] == INNER * 4 // RANKS
    assert held["blocks.1.down.weight"] == INNER * WIDTH * 4 // RANKS
    assert held["blocks.1.down.bias"] == WIDTH * 4
    assert held["blocks.1.up.weight.exp_avg"] == INNER * WIDTH * 4 // RANKS
    inner = [s.bytes for s in storages if s.role is Role.ACTIVATION and s.name.startswith("relu")]
    assert inner == [SAMPLES * INNER * 4 // RANKS] * BLOCKS
    assert step.parameters == BLOCKS * (2 * INNER * WIDTH + INNER + WIDTH)


def test_collectives_are_ops_and_take_their_time() -> None:
    step = drawn(PLANS["words"])
    reduced = [op for op in step.plain.profile.ops if "all_reduce" in op.op]
    assert len(reduced) == 2 * BLOCKS - 1  # one a block and way; nobody wants the gradient of the batch
    assert not any("wait" in op.op for op in step.plain.profile.ops)
    rates = find_device("h100").rates
    size = SAMPLES * WIDTH * 4
    sent = 2 * size * (RANKS - 1) / RANKS / rates.peer_bytes_per_ms
    assert reduced[0].runtime_ms == pytest.approx(rates.ms(2 * size, 0, "float32") + sent)


def test_fsdp_over_tensor_parallel_shards_the_parts() -> None:
    step, device = drawn(PLANS["words"]), find_device("h100")
    rank = Setting(4 * RANKS, "fsdp+tp", tensor=RANKS).rank(step, device)
    name = "blocks.1.up.parametrizations.weight.original"
    (number,) = (s for s, storage in enumerate(step.plain.graph.storages) if storage.name == name)
    assert rank.problem.storages[number].bytes == INNER * WIDTH * 4 // RANKS // 4
    assert simulate(rank.problem, rank.problem.program).time > 0


def test_fit_leaves_the_users_model_and_makes_a_plan() -> None:
    model, x = Net(PLANS["words"]), torch.ones(2048, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    before = {name: p.clone() for name, p in model.named_parameters()}
    fit = lowtide.fit(model, optimizer, x, device="h100", world=RANKS, parallel="tp", budget="80%", time_limit=2.0)
    assert fit.tensor == fit.world == RANKS
    assert fit.trains
    assert {name: torch.equal(p, before[name]) for name, p in model.named_parameters()} == dict.fromkeys(before, True)
    assert all(a is b for a, b in zip(model.parameters(), optimizer.param_groups[0]["params"], strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not distributed.is_initialized()


@pytest.mark.parametrize(
    ("plan", "tensor", "said"),
    [
        (None, 4, "Net does not say how it is spread"),
        ({"nowhere": "colwise"}, 4, "names no module of Net"),
        ({"blocks.*.up": "diagonal"}, 4, "'diagonal' for 'blocks..*', which is not simulated"),
        ({"blocks.*.up": "colwise"}, 3, r"blocks.0.up.weight has the shape \[64, 16\], which 3 devices do not divide"),
    ],
)
def test_bad_plans_get_one_sentence(plan: Any, tensor: int, said: str) -> None:
    with pytest.raises(lowtide.InputError, match=said):
        drawn(plan, tensor)
    assert not distributed.is_initialized()


def test_shared_weights_are_refused() -> None:
    with torch.device("meta"):
        model = Net(PLANS["words"])
        model.blocks[1]["up"].weight = model.blocks[0]["up"].weight  # type: ignore[index]
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(lowtide.InputError, match="is shared with another module"):
        sketch(model, optimizer, torch.ones(2, WIDTH), None, find_device("l4").rates, tensor=2)


@pytest.mark.parametrize(
    ("world", "parallel", "tensor", "said"),
    [
        (16, "tp", 1, "by 2 to 8 devices, not 16"),
        (1, "tp", 1, "by 2 to 8 devices, not 1"),
        (12, "fsdp+tp", 8, "12 is no multiple of 8 above it"),
        (8, "fsdp+tp", 8, "8 is no multiple of 8 above it"),
        (8, "pp", 1, "write one of fsdp, hsdp, ddp, tp, fsdp"),
    ],
)
def test_bad_worlds_get_one_sentence(world: int, parallel: str, tensor: int, said: str) -> None:
    with pytest.raises(lowtide.InputError, match=said):
        Setting(world, parallel, tensor=tensor)


def llama(tokens: int = 32) -> Any:
    """A tiny one of transformers, with its own tp_plan."""
    from lowtide.models.configurations import KNOWN, of_configuration
    from lowtide.models.training import ModelOptions

    facts = {**KNOWN["llama-3.1-8b"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    facts |= {"num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 256}
    with torch.device("meta"):
        return of_configuration("tiny", facts, 4, ModelOptions(seq_len=tokens))


def llama_step(*, sequence: bool, tokens: int = 32) -> Sketch:
    training = llama(tokens)
    make = lambda m: torch.optim.AdamW(m.parameters(), fused=True)  # noqa: E731
    rates = find_device("h100").rates
    return sketch(training.model, make, training.batch, None, rates, gpu=True, tensor=4, sequence=sequence)


@pytest.mark.slow
def test_sequence_parallel_splits_tokens_and_logits() -> None:
    """Between layers a rank has a quarter of the tokens, and of the logits a quarter of the classes."""
    split, whole = (llama_step(sequence=sequence) for sequence in (True, False))
    counts = {}
    for name, step in (("split", split), ("whole", whole)):
        ops = [op.op for op in step.plain.graph.ops]
        counts[name] = {what: sum(what in op for op in ops) for what in ("all_reduce", "reduce_scatter", "all_gather")}
    # A block has two parts: gathered before, scattered behind, and the same in backward.
    assert counts["split"]["reduce_scatter"] >= 2 * 2 * 2
    assert counts["whole"]["reduce_scatter"] == 0
    logits = 4 * 32 * 256 * 4
    largest = [max(s.bytes for s in step.plain.graph.storages if not s.resident) for step in (split, whole)]
    assert largest[1] >= logits > largest[0]
    peaks = [simulate(step.late.problem, step.late.problem.program).peak for step in (split, whole)]
    assert peaks[0] < peaks[1]
    held = [sum(s.bytes for s in step.plain.graph.storages if s.role is Role.PARAMETER) for step in (split, whole)]
    assert held[0] == held[1]


@pytest.mark.slow
def test_tokens_that_are_not_divided_and_plans_of_styles_are_refused() -> None:
    with pytest.raises(lowtide.InputError, match="4 devices do not divide 30 tokens"):
        llama_step(sequence=True, tokens=30)
    with torch.device("meta"):
        model, x = Net(PLANS["styles"]), torch.ones(SAMPLES, WIDTH)
    with pytest.raises(lowtide.InputError, match="that of Net has others"):
        sketch(model, torch.optim.SGD(model.parameters()), x, None, find_device("l4").rates, tensor=2, sequence=True)
    with pytest.raises(lowtide.InputError, match="belongs to tensor parallel"):
        Setting(8, "fsdp", sequence=True)
