"""TRL's SFTTrainer inside a budget: the same callback. A tiny GPT-2 and a tokenizer of ten words; no downloads."""

import sys
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

import lowtide

WORDS = ["<pad>", "<end>", "tide", "low", "high", "water", "sand", "moon", "wave", "shore"]


def train(budget: int | str | None, steps: int = 6) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    words = Tokenizer(WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=10, n_positions=64, n_embd=64, n_layer=3, n_head=4))
    data = Dataset.from_dict({"input_ids": torch.randint(2, 10, (48, 64)).tolist()})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            logging_steps=1,
            max_length=64,
            gradient_checkpointing=False,  # on by default: lowtide decides what to recompute
            bf16=False,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        callbacks = [] if budget is None else [lowtide.LowtideCallback(budget=budget)]
        trainer = SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer, callbacks=callbacks)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('12MB')}\n")
