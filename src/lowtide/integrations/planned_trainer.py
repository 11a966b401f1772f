"""`LowtideTrainer`: Hugging Face's Trainer whose training steps are whole planned steps, the optimizer included."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import Tensor, nn

from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.training.train_step import TrainStep, train_step

need("trainer", "LowtideTrainer")
from transformers import Trainer  # noqa: E402  # behind the sentence that says what is missing

_TRAINERS = ("model", "optimizer", "batch", "loss", "budget", "clip_grad_norm", "accumulate", "keep_gradients")
"""What the Trainer itself gives to `train_step`."""
OPTIONS = tuple(name for name in signature(train_step).parameters if name not in _TRAINERS)


class PlannedSteps:
    """To be put before a Trainer's class: `class Mine(PlannedSteps, Seq2SeqTrainer)`.

    Forward, backward, clipping and the optimizer's update are one call of `lowtide.train_step` inside `budget`, as its
    arguments say; `step_options` are further ones of `train_step`. Loop, data, schedulers, evaluation, logs and
    checkpoints stay the Trainer's.
    """

    def __init__(
        self, *args: Any, budget: int | str | None, step_options: Mapping[str, Any] | None = None, **rest: Any
    ) -> None:
        options = dict(step_options or {})
        for name in options:
            if name not in OPTIONS:
                raise InputError(f"there is no option {name!r} in step_options; there are {', '.join(OPTIONS)}")
        self.planned_step: TrainStep | None = None
        """What the steps run through; made at the first one."""
        self._budget = budget
        self._step_options = options
        self._micro = 0
        """Micro-steps since the parameters last moved."""
        self._peak = 0
        """The highest that was measured since the last entry of the log."""
        super().__init__(*args, **rest)

    def train(self, *args: Any, **rest: Any) -> Any:
        """As the Trainer's; memory and files of the planned steps are given back at the end."""
        self.planned_step, self._micro = None, 0
        try:
            return super().train(*args, **rest)  # type: ignore[misc]
        finally:
            if self.planned_step is not None:
                self.planned_step.close()

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One micro-step, and at the last of an accumulation the update; returns the detached loss."""
        trainer: Any = self
        model.train()
        if callable(getattr(trainer.optimizer, "train", None)):
            trainer.optimizer.train()
        every, due = trainer.args.gradient_accumulation_steps, trainer.accelerator.sync_gradients
        if self._micro == every - 1 and not due:
            raise InputError(
                "the data ended in the middle of an accumulation, which planned steps cannot go on with: give the "
                "dataset a length, or max_steps that end where it does"
            )
        share = 1 if self._scales_itself(num_items_in_batch) else trainer.current_gradient_accumulation_steps
        batch = {"inputs": dict(trainer._prepare_inputs(inputs)), "items": num_items_in_batch, "share": share}
        step = self._step_for(model, batch)
        loss: Tensor = step(batch)
        self._micro += 1
        self._peak = max(self._peak, step.measured_peak or 0)
        if due:
            if self._micro < every:
                step.flush()
                self._peak = max(self._peak, step.measured_peak or 0)
            self._micro = 0
            # The parameters have moved: tells Accelerate's optimizer that no step is due.
            trainer.accelerator.gradient_state._set_sync_gradients(False)
        return loss

    def _step_for(self, model: nn.Module, batch: Any) -> TrainStep:
        trainer: Any = self
        if trainer.accelerator.scaler is not None:
            raise InputError(
                "fp16=True scales the loss and leaves out steps, which planned steps cannot: say bf16=True"
            )
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        step = self.planned_step
        if step is None or step.model is not model or step.optimizer is not optimizer:
            if step is not None:
                step.close()
            clip = trainer.args.max_grad_norm
            step = self.planned_step = train_step(
                model,
                optimizer,
                batch,
                self._loss,
                self._budget,
                clip_grad_norm=clip if clip and clip > 0 else None,
                accumulate=trainer.args.gradient_accumulation_steps,
                **self._step_options,
            )
        return step

    def _loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What the Trainer calls backward on."""
        trainer: Any = self
        with trainer.compute_loss_context_manager():
            loss: Tensor = trainer.compute_loss(model, dict(batch["inputs"]), num_items_in_batch=batch["items"])
        scaled: Tensor = loss / batch["share"]
        return scaled

    def _scales_itself(self, items: Any) -> bool:
        """Has `compute_loss` divided by all items of an accumulation, so that the Trainer does not?"""
        trainer: Any = self
        if trainer.loss_is_scaled_for_ga is not None:
            return bool(trainer.loss_is_scaled_for_ga)
        return (trainer.model_accepts_loss_kwargs and items is not None) or trainer.compute_loss_func is not None

    def _clip_grad_norm(self, model: nn.Module) -> Tensor | None:
        """Clipped they are already: the norm before that."""
        return None if self.planned_step is None else self.planned_step.grad_norm

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor | None:
        """None where nothing is clipped: a norm needs all gradients at once, which planned steps avoid."""
        return grad_norm

    def log(self, logs: dict[str, Any], *args: Any, **rest: Any) -> None:
        """As the Trainer's, with predicted and measured peak beside each training loss."""
        step = self.planned_step
        if step is not None and "loss" in logs:
            peaks = {"lowtide_predicted_peak_B": step.predicted_peak, "lowtide_measured_peak_B": self._peak or None}
            logs |= {name: peak for name, peak in peaks.items() if peak is not None}
            self._peak = 0
        super().log(logs, *args, **rest)  # type: ignore[misc]


class LowtideTrainer(PlannedSteps, Trainer):  # type: ignore[misc]
    """`LowtideTrainer(model, args, train_dataset=data, budget="4GiB")`: a Trainer of planned steps, equal bit for bit.

    `budget` and `step_options` as in `PlannedSteps`; all else is the Trainer's.
    """
