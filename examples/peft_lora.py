"""PEFT's LoRA in Hugging Face's Trainer, inside a budget: the same callback. A tiny BERT with random weights."""

import sys
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import lowtide


def train(budget: int | str | None, steps: int = 6) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, vocab_size=200
    )
    adapters = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["query", "value"], task_type="SEQ_CLS")
    model = get_peft_model(BertForSequenceClassification(config), adapters)
    tokens = torch.randint(200, (48, 64))
    data = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": torch.tensor(k % 2)}
        for k, row in enumerate(tokens)
    ]
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
        callbacks = [] if budget is None else [lowtide.LowtideCallback(budget=budget)]
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=callbacks)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('12MB')}\n")
