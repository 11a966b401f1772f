"""GPT-2, narrow, with more and more layers: each is captured, measured and planned once."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from lowtide.experiments.deeper.record import Deeper, Depth
from lowtide.experiments.eager_training import EagerCopy
from lowtide.tracing.loss import model_loss
from lowtide.training.train_step import train_step

WIDTH, HEADS, WORDS, LENGTH, BATCH = 64, 4, 512, 64, 4


def measure_deeper(layers: Sequence[int], budget: str, time_limit: float | None, say: Callable[[str], None]) -> Deeper:
    """One start for each number of layers; the first of all warms up and does not count."""
    depths = []
    for place, count in enumerate((layers[0], *layers)):
        say(f"{count} layers")
        torch.manual_seed(0)
        model, batch = narrow_gpt2(count)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        eager = EagerCopy(model, optimizer, model_loss)
        step = train_step(
            *(model, optimizer, batch), budget=budget, time_limit=time_limit, progress=False, measure="before"
        )
        spent, times = step.seconds, [eager.step(batch)[1] / 1000 for _ in range(3)]
        if place:
            depths.append(
                Depth(
                    layers=count,
                    ops=len(step.graph.ops),
                    capture_s=spent["capture"],
                    provisional_s=spent["provisional plan"],
                    measure_s=spent["measure"],
                    plan_s=spent["plan"] + spent["rewrite"],
                    eager_s=sorted(times)[1],
                )
            )
        step.close()
    return Deeper(budget, time_limit, str(torch.__version__), torch.get_num_threads(), tuple(depths))


def narrow_gpt2(layers: int) -> tuple[nn.Module, dict[str, Any]]:
    """With random weights, and a batch for it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": WIDTH, "n_head": HEADS, "vocab_size": WORDS, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False, **sizes))
    model.train()
    ids = torch.randint(0, WORDS, (BATCH, LENGTH))
    return model, {"input_ids": ids, "labels": ids.clone()}
