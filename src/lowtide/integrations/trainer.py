"""`LowtideCallback`: Hugging Face's Trainer inside a budget."""

from typing import Any

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import Loop, loops
from lowtide.errors import InputError
from lowtide.extras import need

need("trainer", "LowtideCallback")
from transformers import TrainerCallback  # noqa: E402  # behind the sentence that says what is missing


class LowtideCallback(TrainerCallback):  # type: ignore[misc]
    """Compiles the model with lowtide when training begins, and writes what its steps take into the Trainer's log.

    `Trainer(..., callbacks=[LowtideCallback(budget="4GiB")])`; options are those of `lowtide.configure`. When training
    has ended, the model is called as before.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        self.options = {"budget": budget, **options}
        self._reported: tuple[int | None, int | None] = (None, None)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Compile the model in place."""
        if getattr(model, "_compiled_call_impl", None) is not None or hasattr(model, "_orig_mod"):
            raise InputError(
                "the model is compiled already: leave out torch_compile=True, LowtideCallback compiles it itself"
            )
        model.compile(backend=backend, options=self.options)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Note predicted and measured peak where they are new."""
        loop = self.loop
        if loop is None or loop.measured_peak is None:
            return
        found = (loop.predicted_peak, loop.measured_peak)
        if found != self._reported:
            self._reported = found
            entry = {"lowtide_predicted_peak_B": found[0], "lowtide_measured_peak_B": found[1]}
            state.log_history.append({**entry, "epoch": state.epoch, "step": state.global_step})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """The model is the user's again."""
        model._compiled_call_impl = None

    @property
    def loop(self) -> Loop | None:
        """The newest loop with a budget: what is planned, predicted and measured."""
        return next((loop for loop in reversed(loops.values()) if loop.graphs()), None)
