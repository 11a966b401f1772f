"""From what the user writes on the command line to a model and a batch."""

import torch

from lowtide.errors import InputError, shown
from lowtide.models.configurations import KNOWN, from_configuration, is_configuration
from lowtide.models.reference import REFERENCES
from lowtide.models.training import ModelOptions, Training
from lowtide.models.user_function import call_user_function, load_user_function


def build(model: str, batch_size: int, options: ModelOptions | None = None, *, seed: int = 0) -> Training:
    """Build `model`: a name, a config.json of transformers, `path/to/file.py:function` or `package.module:function`.

    Under `torch.device("meta")` it has no weights.
    """
    options = options or ModelOptions()
    if not 1 <= batch_size < 2**31:
        raise InputError(f"the batch size must be at least 1 and below 2**31, not {batch_size}")
    if not 0 <= seed < 2**64:
        raise InputError(f"the seed must be a number from 0 to 2**64 - 1, not {seed}")
    torch.manual_seed(seed)
    if ":" in model:
        options.refuse_all_but((), f"{model}, whose function decides all sizes")
        return call_user_function(model, load_user_function(model), batch_size)
    if is_configuration(model):
        return from_configuration(model, batch_size, options)
    reference = REFERENCES.get(model)
    if reference is None:
        raise InputError(
            f"unknown model {shown(model)}: write one of {', '.join((*REFERENCES, *KNOWN))}, "
            "a config.json of transformers, or path/to/file.py:function, or package.module:function"
        )
    options.refuse_all_but(reference.options, model)
    return reference.make(batch_size, options)
