"""What cannot be captured and can be seen before or after tracing: one clear error each."""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from lowtide.errors import CaptureError
from lowtide.graph.batch_form import BatchForm, TensorLeaf
from lowtide.tracing.joint import Inputs
from lowtide.tracing.recorder import foreign_random
from lowtide.tracing.source import short, user_line
from lowtide.watching.watcher import Effect


def refuse_types(model: object, optimizer: object) -> None:
    """Refuse what is no model or no optimizer."""
    where = user_line()
    if not isinstance(model, nn.Module):
        raise CaptureError(f"{where}: the model must be a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(optimizer, Optimizer):
        raise CaptureError(f"{where}: the optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    for path, module in model.named_modules():
        if isinstance(module, OptimizedModule):
            raise CaptureError(
                f"{where}: {_called(path)} is compiled with torch.compile: give the module itself, _orig_mod"
            )
        if isinstance(module, nn.DataParallel | DistributedDataParallel):
            raise CaptureError(
                f"{where}: {_called(path)} is a {type(module).__name__}, which spreads a step over several; "
                "lowtide plans one: give the module inside, .module"
            )
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise CaptureError(
                f"{where}: {name} has a hook on its gradient, which a captured step would not call: "
                "remove it, and do its work in the loss function or in the optimizer"
            )


def _called(path: str) -> str:
    return f"the module {path!r}" if path else "the model"


def refuse_early(optimizer: Optimizer, inputs: Inputs, form: BatchForm) -> None:
    """Refuse an optimizer or a batch with which no trace can succeed."""
    where = user_line()
    _refuse_optimizer(optimizer, where)
    held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if not held:
        raise CaptureError(
            f"{where}: the optimizer holds no trainable parameter, so there is nothing to train: "
            "set requires_grad on some, or give the optimizer others"
        )
    tensors = inputs.parameters | inputs.buffers | inputs.outside
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) > 1:
        raise CaptureError(
            f"{where}: the model's tensors are on several devices ({', '.join(sorted(map(str, devices)))}): "
            "lowtide plans one device, so move the model to one"
        )
    device = next(iter(devices))
    if device.type == "meta":
        raise CaptureError(f"{where}: the model is on the meta device, which holds no data: load it on a real one")
    for path, leaf in zip(form.paths, form.leaves, strict=True):
        if isinstance(leaf, TensorLeaf) and leaf.device != device:
            raise CaptureError(
                f"{where}: {path} is on {leaf.device}, the model on {device}: move the batch with .to({str(device)!r})"
            )


def _refuse_optimizer(optimizer: Optimizer, where: str) -> None:
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise CaptureError(f"{where}: SparseAdam needs sparse gradients, which cannot be planned: use Adam")
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    needs_closure = closure is not None and closure.default is inspect.Parameter.empty
    if isinstance(optimizer, torch.optim.LBFGS) or needs_closure:
        raise CaptureError(
            f"{where}: {name} calls the model several times in one step, so a step is not one iteration: "
            "use an optimizer that steps once per backward, such as SGD or Adam"
        )


def refuse_stale_parameters(inputs: Inputs, constants: Sequence[Tensor]) -> None:
    """Refuse a loss that holds the model's parameters by itself: their gradient would be lost."""
    names = {id(tensor): name for name, tensor in (inputs.parameters | inputs.buffers).items()}
    for tensor in constants:
        if id(tensor) in names:
            raise CaptureError(
                f"the step reads {names[id(tensor)]!r} through a reference taken before it, not from the model: "
                "read it as an attribute of the model inside the loss function"
            )


def refuse_effects(effects: Sequence[Effect], printed: str, line: str) -> None:
    """Refuse a step that changes something in Python or prints: run from the graph it would do so no more."""
    drawn = next((effect for effect in effects if effect.random), None)
    if drawn is not None:
        raise CaptureError(foreign_random(f"({drawn.name}) in what is called at {line}"))
    if effects:
        first = effects[0]
        more = f" and {len(effects) - 1} more" if len(effects) > 1 else ""
        raise CaptureError(
            f"{line}: the step changes {first}{more}, which a captured step would do no more: return it from the loss "
            'function, or keep it in a buffer; or, if that does not matter, pass side_effects="ignore"'
        )
    if printed:
        raise CaptureError(
            f"{short(printed)}: the step prints, which a captured step would do no more: print what the step returns, "
            'or, if that does not matter, pass side_effects="ignore"'
        )
