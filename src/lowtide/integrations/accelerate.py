"""`LowtidePlugin`: Accelerate's own switch for torch.compile, with lowtide behind it."""

from typing import Any

from lowtide.compiling.backend import backend
from lowtide.compiling.settings import settings_of
from lowtide.extras import need

need("accelerate", "LowtidePlugin")
from accelerate.utils import DynamoBackend, TorchDynamoPlugin  # noqa: E402  # behind the sentence on what is missing


class LowtidePlugin(TorchDynamoPlugin):  # type: ignore[misc]
    """`Accelerator(dynamo_plugin=LowtidePlugin(budget="4GiB"))`: `prepare` compiles the model with lowtide.

    Options are those of `lowtide.configure`. Accelerate asks a plugin two things: whether to compile, and with which
    arguments. Its list of backends answers only the first here, so it is told the name on it that runs the same ops.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        given = {"budget": budget, **options}
        settings_of(given)  # refuses now what makes no sense
        super().__init__(backend=DynamoBackend.AOT_EAGER, mode="default", dynamic=False, options=given)

    def to_kwargs(self) -> dict[str, Any]:
        """What `torch.compile` is called with."""
        return {"backend": backend, "dynamic": self.dynamic, "options": dict(self.options)}
