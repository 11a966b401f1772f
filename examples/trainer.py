"""Hugging Face's Trainer inside a budget: one callback. A tiny BERT with random weights; nothing is downloaded."""

import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import lowtide


def train(budget: str | None, steps: int = 6) -> tuple[list[float], lowtide.LowtideCallback | None]:
    """The losses, and the callback that knows what the steps took."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, vocab_size=200
    )
    model = BertForSequenceClassification(config)
    tokens = torch.randint(200, (48, 64))
    data = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": torch.tensor(k % 2)}
        for k, row in enumerate(tokens)
    ]
    callback = None if budget is None else lowtide.LowtideCallback(budget=budget)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[] if callback is None else [callback])
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], callback


if __name__ == "__main__":
    losses, callback = train(sys.argv[1] if len(sys.argv) > 1 else "12MB")
    assert callback is not None
    assert callback.loop is not None
    sys.stdout.write(f"losses {losses}; the steps took {callback.loop.measured_peak:,} bytes\n")
