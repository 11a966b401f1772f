"""`LowtideCallback`: Hugging Face's Trainer inside a budget."""

import sys
from typing import Any

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import Loop
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.integrations.peaks import Peaks, sentence

need("trainer", "LowtideCallback")
from transformers import TrainerCallback  # noqa: E402  # behind the sentence that says what is missing


class LowtideCallback(TrainerCallback):  # type: ignore[misc]
    """Compiles the model with lowtide when training begins, and writes what its steps take into the Trainer's log.

    `Trainer(..., callbacks=[LowtideCallback(budget="4GiB")])`; options are those of `lowtide.configure`. When training
    has ended, the model is called as before.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        self._peaks = Peaks({"budget": budget, **options})

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Compile the model in place."""
        if getattr(model, "_compiled_call_impl", None) is not None or hasattr(model, "_orig_mod"):
            raise InputError(
                "the model is compiled already: leave out torch_compile=True, LowtideCallback compiles it itself"
            )
        model.compile(backend=backend, dynamic=False, options=self._peaks.options)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Note the peaks where they are new, and say it."""
        news = self._peaks.news()
        if news:
            state.log_history.append({**news, "epoch": state.epoch, "step": state.global_step})
            if state.is_local_process_zero:
                sys.stdout.write(f"{sentence(news)}\n")

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """The model is the user's again."""
        model._compiled_call_impl = None

    @property
    def loop(self) -> Loop | None:
        """What is planned, predicted and measured; None before the first step."""
        return self._peaks.loop
