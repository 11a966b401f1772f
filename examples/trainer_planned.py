"""Hugging Face's Trainer with the optimizer in the plan as well: LowtideTrainer runs whole planned steps."""

import sys
import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import lowtide


def train(budget: int | str | None, **arguments: Any) -> Trainer:
    """The trainer when it is done; without a budget it is the Trainer itself."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=200
    )
    model = BertForSequenceClassification(config)
    tokens = torch.randint(200, (40, 64))
    data = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": torch.tensor(k % 2)}
        for k, row in enumerate(tokens)
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "num_train_epochs": 1,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 2,  # five batches: the last step has one
            "max_grad_norm": 0.5,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 1,
            "logging_steps": 1,
            "report_to": [],
            "save_strategy": "no",
            "use_cpu": True,
            "disable_tqdm": True,
        }
        args = TrainingArguments(folder, **settings | arguments)
        if budget is None:
            trainer = Trainer(model, args, train_dataset=data)
        else:
            trainer = lowtide.LowtideTrainer(model, args, train_dataset=data, budget=budget)
        trainer.train()
    return trainer


if __name__ == "__main__":
    trainer = train("80%")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    sys.stdout.write(f"losses {losses}\n{trainer.planned_step}\n")
