"""How torch and the optimizer are set: what decides which kernels run and which bytes they take."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, overrides
from torch.nn.modules import module as modules
from torch.nn.utils import parametrize
from torch.optim import Optimizer
from torch.utils._device import DeviceContext

from lowtide.watching.values import PLAIN

Settings = dict[str, object]

_GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
)
_PRECISIONS = [("generic", "all"), *((b, op) for b in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn"))]
# Read anew by every optimizer.step(), and without weight for its bytes.
_FREE = {"params", "lr", "initial_lr", "max_lr", "min_lr"}


def torch_settings() -> Settings:
    """The switches of torch that change what a step computes or takes, by a name that a person knows."""
    backends = torch.backends
    return {
        "autocast": tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")),
        "the cache of autocast": torch.is_autocast_cache_enabled(),
        "torch.autograd.set_detect_anomaly": torch.is_anomaly_enabled(),
        "the mode of dispatch": torch._C._len_torch_dispatch_stack(),
        "the mode of torch's functions": tuple(map(_mode, overrides._get_current_function_mode_stack())),
        "torch.autograd.graph.saved_tensors_hooks": _hooks_on_saved(),
        "torch.nn.utils.parametrize.cached": bool(parametrize._cache_enabled),
        "the default dtype": torch.get_default_dtype(),
        "the default device": str(torch.get_default_device()),
        "inference mode": torch.is_inference_mode_enabled(),
        "torch.use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of float32": tuple(torch._C._get_fp32_precision_getter(*where) for where in _PRECISIONS),
        "torch.set_num_threads": torch.get_num_threads(),
        "torch.backends.mkldnn": (backends.mkldnn.enabled, backends.mkldnn.deterministic),
        "torch.backends.nnpack": torch._C._get_nnpack_enabled(),
        "torch.backends.cudnn": (
            backends.cudnn.enabled,
            backends.cudnn.benchmark,
            backends.cudnn.deterministic,
        ),
        "torch.backends.cuda": (
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        ),
        "the kernels of scaled_dot_product_attention": (
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
            torch._C._get_cudnn_sdp_enabled(),
        ),
        "a hook of all modules": tuple(tuple(map(id, getattr(modules, name, {}).values())) for name in _GLOBAL_HOOKS),
    }


def _mode(mode: object) -> object:
    """A default device is a mode too, which torch makes anew at will."""
    return str(mode.device) if isinstance(mode, DeviceContext) else (type(mode), id(mode))


def _hooks_on_saved() -> object:
    """The innermost pair of hooks; `save_on_cpu` makes the same functions anew, around the same values."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return None if hooks is None else tuple(map(_code_of, hooks))


def _code_of(function: Any) -> object:
    if not isinstance(function, FunctionType):
        return id(function)
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    return id(function.__code__), tuple((type(x), x) if isinstance(x, PLAIN) else id(x) for x in held)


def optimizer_settings(optimizer: Optimizer, separable: bool) -> Settings:
    """What decides how updates run and which bytes they hold; learning rates and the like are read at every step."""
    return {
        "the optimizer": (id(optimizer), type(optimizer), separable),
        **{
            name: value
            for k, group in enumerate(optimizer.param_groups)
            for name, value in _group_settings(f"the optimizer's group {k}", group)
        },
    }


def _group_settings(path: str, group: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield f"the parameters of {path}", tuple(map(id, group["params"]))
    yield f"lr of {path}", isinstance(group.get("lr"), Tensor)
    for name, value in group.items():
        if name in _FREE:
            continue
        if isinstance(value, bool) or value is None:
            yield f"{name} of {path}", value
        elif isinstance(value, int | float):
            # Switched on or off it takes other temporaries; how much it is, is read at every step.
            yield f"{name} of {path}", bool(value)


def change(before: Settings, now: Settings) -> str | None:
    """The name of the first setting that is not what it was."""
    return next((name for name in before.keys() | now.keys() if before.get(name) != now.get(name)), None)
