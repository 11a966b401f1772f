"""What cannot be captured and can be seen before or after tracing: one clear error each."""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.errors import CaptureError
from lowtide.graph.batch_form import BatchForm, TensorLeaf
from lowtide.optimizer.torch_optimizers import torch_class
from lowtide.tracing.joint import Inputs, stale_parameter
from lowtide.tracing.loss import refuse_criterion
from lowtide.tracing.recorder import foreign_random
from lowtide.tracing.source import short, user_line
from lowtide.watching.holders import Attributes
from lowtide.watching.watcher import Effect

_ONE_PROCESS = "a graph alone does not train on several ranks: give it to train_step, or the plain model in one process"


def refuse_types(model: object, optimizer: object, loss: object = None, *, spreads: bool = False) -> None:
    """Refuse what is no model, no optimizer or no loss function, and, unless it is known how the model `spreads` over
    ranks, what belongs to a step of several processes."""
    where = user_line()
    if not isinstance(model, nn.Module):
        raise CaptureError(f"{where}: the model must be a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(optimizer, Optimizer):
        raise CaptureError(f"{where}: the optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    refuse_criterion(loss, where)
    if not spreads:
        _refuse_ranks(where)
    _refuse_parallel(model, where, spreads=spreads)
    for path, module in model.named_modules():
        if isinstance(module, OptimizedModule):
            raise CaptureError(
                f"{where}: {_called(path)} is compiled with torch.compile: give the module itself, _orig_mod"
            )
        if module._compiled_call_impl is not None:
            raise CaptureError(
                f"{where}: {_called(path)} is compiled in place by its method compile(): leave that call out"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(
                f"{where}: {_called(path)} is a module of torch.jit, which cannot be traced: give the Python module"
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise CaptureError(f"{where}: {name} has no shape yet: run the model once on a batch before")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise CaptureError(
                f"{where}: {name} has a hook on its gradient, which a captured step would not call: "
                "remove it, and do its work in the loss function or in the optimizer"
            )


def _refuse_ranks(where: str) -> None:
    """Refuse to train as one of several processes: each would go its own way, and nobody would say so."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise CaptureError(
            f"{where}: this is one of {distributed.get_world_size()} processes of torch.distributed, which would train "
            f"apart: {_ONE_PROCESS}"
        )


def _refuse_parallel(model: nn.Module, where: str, *, spreads: bool) -> None:
    """Refuse models that are spread over devices or processes, but for what `spreads` as a whole."""
    # Imported only by those who use them, and slow to import.
    fsdp, tensor = (sys.modules.get(f"torch.distributed.{name}") for name in ("fsdp", "tensor"))
    spread: tuple[type, ...] = (nn.DataParallel, DistributedDataParallel)
    if fsdp is not None:
        spread += (fsdp.FullyShardedDataParallel,) if spreads else (fsdp.FullyShardedDataParallel, fsdp.FSDPModule)
    for path, module in model.named_modules():
        if isinstance(module, spread):
            kind = next(c.__name__ for c in type(module).__mro__ if c in spread)
            raise CaptureError(
                f"{where}: {_called(path)} is a {kind}, which spreads a step over several devices or processes: "
                f"{_ONE_PROCESS}"
            )
    for name, parameter in model.named_parameters():
        if not spreads and tensor is not None and isinstance(parameter, tensor.DTensor):
            raise CaptureError(f"{where}: {name} is a DTensor, of which each process holds a part: {_ONE_PROCESS}")


def refuse_arrays(form: BatchForm) -> None:
    """Refuse numpy arrays in a batch: their values would be frozen into the step."""
    for path, leaf in zip(form.paths, form.leaves, strict=True):
        if isinstance(leaf, np.ndarray):
            raise CaptureError(
                f"{user_line()}: {path} is a numpy array, which a step cannot take as an input: use torch.from_numpy"
            )


def refuse_objects(form: BatchForm) -> None:
    """Refuse objects in a batch that hold tensors: those would be no inputs, and each batch would be captured anew."""
    for path, leaf in zip(form.paths, form.leaves, strict=True):
        if isinstance(leaf, TensorLeaf | type | ModuleType):
            continue
        held = [*getattr(leaf, "__dict__", {}).values(), *(getattr(leaf, n, None) for n in _slots(type(leaf)))]
        if any(isinstance(x, Tensor) for x in pytree.tree_leaves(held)):
            raise CaptureError(
                f"{user_line()}: {path} is a {type(leaf).__name__} that holds tensors, which a step cannot look into: "
                "pass a dict or tuple of them, or tell torch.utils._pytree about the class"
            )


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def refuse_layouts(inputs: Inputs, form: BatchForm, batch: Sequence[Tensor]) -> None:
    """Refuse sparse tensors, tensors with functions of their own and the like among what a step starts from."""
    given = inputs.parameters | inputs.buffers | dict(zip(form.tensor_paths, batch, strict=True))
    for name, tensor in given.items():
        own = getattr(type(tensor).__torch_function__, "__func__", None)
        if own not in (None, getattr(Tensor.__torch_function__, "__func__", None)):
            raise CaptureError(
                f"{user_line()}: {name} is a {type(tensor).__name__}, which has functions of its own "
                "(__torch_function__) that a trace goes past: use .as_subclass(torch.Tensor)"
            )
        if tensor.layout is not torch.strided:
            raise CaptureError(
                f"{user_line()}: {name} is a {tensor.layout} tensor, whose bytes depend on its values, so they cannot "
                "be planned: use .to_dense()"
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
    halves = _fused_momentum_of_halves(optimizer)
    if halves is not None:
        raise CaptureError(
            f"{where}: torch's fused {name} computes the momentum of {halves} parameters on the CPU from memory that "
            "nobody wrote, so no two runs are the same: pass fused=False"
        )


def _fused_momentum_of_halves(optimizer: Optimizer) -> torch.dtype | None:
    """The dtype for which torch 2.13's fused kernel of SGD with momentum does not repeat itself on the CPU."""
    if torch_class(optimizer) is not torch.optim.SGD:
        return None
    groups = [group for group in optimizer.param_groups if group["fused"] and group["momentum"]]
    parameters = [p for group in groups for p in group["params"] if p.requires_grad and p.device.type == "cpu"]
    return next((p.dtype for p in parameters if p.dtype in (torch.bfloat16, torch.float16)), None)


def refuse_stale_parameters(inputs: Inputs, constants: Sequence[Tensor]) -> None:
    """Refuse a loss that holds the model's parameters by itself: their gradient would be lost."""
    names = {id(tensor): name for name, tensor in (inputs.parameters | inputs.buffers).items()}
    for tensor in constants:
        if id(tensor) in names:
            raise stale_parameter(names[id(tensor)])


def refuse_others_on_ranks(optimizer: Optimizer, trained: Mapping[str, Tensor], group: object) -> None:
    """Refuse gradients that nobody moves by, where they would have to be reduced over ranks."""
    held = {id(p) for settings in optimizer.param_groups for p in settings["params"]}
    name = next((name for name, p in trained.items() if id(p) not in held), None)
    if group is not None and name is not None:
        raise CaptureError(
            f"{user_line()}: {name!r} gets a gradient and the optimizer does not hold it, which is supported in one "
            "process alone: give it to the optimizer, or set requires_grad_(False)"
        )


def refuse_modes() -> None:
    """Refuse what works on the ops or on the backward of eager, which a captured step does not have."""
    where = user_line()
    if torch._C._len_torch_dispatch_stack():
        mode = type(torch.utils._python_dispatch._get_current_dispatch_mode()).__name__
        raise CaptureError(
            f"{where}: a {mode} is on, which works on the ops of eager, and a captured step has others: leave it for "
            "this call"
        )
    if torch.is_anomaly_enabled():
        raise CaptureError(
            f"{where}: torch.autograd.set_detect_anomaly is on, which looks at eager's backward, and a captured step "
            "has none: switch it off"
        )
    if parametrize._cache_enabled:
        raise CaptureError(
            f"{where}: torch.nn.utils.parametrize.cached() is on, which keeps tensors beyond the step: use it inside "
            "of the loss function"
        )


def refuse_seeding(seeded: str) -> None:
    """Refuse a step that sets torch's random generator, or looks at its state: a graph only draws from it."""
    if seeded:
        raise CaptureError(
            f"{short(seeded)}: the step sets a random generator of torch's or looks at its state (manual_seed, "
            "fork_rng), which a captured step would not do: draw the numbers outside and put them into the batch"
        )


def refuse_effects(effects: Sequence[Effect], printed: str, asked: str, line: str) -> None:
    """Refuse a step that changes something in Python, prints, or asks what another step answers anew: run from the
    graph it would do so no more."""
    drawn = next((effect for effect in effects if effect.random), None)
    if drawn is not None:
        raise CaptureError(foreign_random(f"({drawn.name}) in what is called at {line}"))
    moved = next((effect for effect in effects if effect.moves_on), None)
    if moved is not None:
        raise CaptureError(
            f"{line}: the step takes values from {moved.holder.path}, which moves on, and a graph would repeat the "
            "first one for ever: take them outside the step and put them into the batch; or, if that does not "
            'matter, pass side_effects="ignore"'
        )
    kept = next((effect for effect in effects if effect.keeps_tensor and isinstance(effect.holder, Attributes)), None)
    if kept is not None:
        raise CaptureError(
            f"{line}: {type(kept.holder.owner).__name__} {kept.holder.path!r} stores a tensor of the step in its "
            f"attribute {kept.key!r}, which a captured step cannot do: return it from the loss function, or register a "
            'buffer; or, if that does not matter, pass side_effects="ignore"'
        )
    if effects:
        first = effects[0]
        more = f" and {len(effects) - 1} more" if len(effects) > 1 else ""
        raise CaptureError(
            f"{line}: the step changes {first}{more}, which a captured step would do no more: return it from the loss "
            'function, or keep it in a buffer; or, if that does not matter, pass side_effects="ignore"'
        )
    if printed:
        raise CaptureError(
            f"{short(printed)}: the step prints, or opens or writes a file, which a captured step would do no more: "
            'print what it returns, or, if that does not matter, pass side_effects="ignore"'
        )
    if asked:
        raise CaptureError(
            f"{short(asked)}: the step asks for the time, for files or for something else of the operating system, and "
            "a captured step would keep the first answer for ever: ask outside of the step and put it into the batch; "
            'or, if that does not matter, pass side_effects="ignore"'
        )
