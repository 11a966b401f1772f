"""`LowtideCallback` for Lightning: `training_step` inside a budget."""

from typing import Any

import torch

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import Loop
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.integrations.peaks import Peaks

need("lightning", "LowtideCallback of lowtide.integrations.lightning")
from lightning.pytorch import Callback  # noqa: E402  # behind the sentence that says what is missing


class LowtideCallback(Callback):  # type: ignore[misc]
    """`Trainer(callbacks=[LowtideCallback(budget="4GiB")])` compiles `training_step` with lowtide while fit runs.

    Options are those of `lowtide.configure`. A callback, not a strategy: strategies say where and in how many processes
    training runs, and that stays as it is. The peaks are logged when they are new.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        self._peaks = Peaks({"budget": budget, **options})
        self._compiled: Any = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Compile `training_step` of this module alone."""
        if pl_module._compiler_ctx is not None or "training_step" in vars(pl_module):
            raise InputError(
                "training_step is compiled or replaced already: give the Trainer the plain module, LowtideCallback "
                "compiles it itself"
            )
        step, options = pl_module.training_step, self._peaks.options
        self._compiled = torch.compile(step, backend=backend, dynamic=False, options=options)
        pl_module.training_step = self._compiled

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        """Log the peaks where they are new."""
        self.log_dict({name: float(value) for name, value in self._peaks.news().items()})

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """The module is the user's again."""
        if self._compiled is not None and vars(pl_module).get("training_step") is self._compiled:
            del pl_module.training_step
        self._compiled = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The module is the user's again, also where training failed."""
        self.on_fit_end(trainer, pl_module)

    @property
    def loop(self) -> Loop | None:
        """What is planned, predicted and measured; None before the first step."""
        return self._peaks.loop
