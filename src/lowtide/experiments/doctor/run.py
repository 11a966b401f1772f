"""`lowtide doctor`: what is here is told, then every check runs, whatever became of the others."""

import os
import platform
import shutil
import subprocess
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import torch

from lowtide.device import cuda
from lowtide.device.clock import total_memory
from lowtide.device.meter import meter_for
from lowtide.device.shim import compiler
from lowtide.errors import InputError, shortened
from lowtide.experiments.doctor.advice import advice
from lowtide.experiments.doctor.checks import CHECKS
from lowtide.experiments.doctor.record import Diagnosis, Finding
from lowtide.units import format_bytes

_FRAMES = 6
"""Of the traceback of a check that fails."""


def device_called(name: str | None) -> torch.device:
    """The device to look at: `name`, or a GPU where torch sees one."""
    gpus = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if name is None:
        return torch.device("cuda" if gpus else "cpu")
    if name in ("cpu", *gpus) or (name == "cuda" and gpus):
        return torch.device(name)
    raise InputError(f"there is no device {name!r} here: torch sees {', '.join(('cpu', *gpus))}")


def examine(device: torch.device, say: Callable[[str], None]) -> Diagnosis:
    """Run every check on `device`; one that fails does not keep the others from running."""
    known, found = [], []
    for name, ask in facts(device).items():
        try:
            known.append((name, ask()))
        except Exception as error:  # noqa: BLE001 - what cannot be told is a result
            known.append((name, "not known: see below"))
            told = _told(error)
            found.append(Finding(name, False, told, 0.0, advice(name, told)))
    for name, run in CHECKS.items():
        say(name)
        began = perf_counter()
        try:
            passed, said = True, run(device)
        except Exception as error:  # noqa: BLE001 - what fails is the result
            passed, said = False, _told(error)
        found.append(Finding(name, passed, said, perf_counter() - began, "" if passed else advice(name, said)))
    return Diagnosis(str(device), tuple(known), tuple(found))


def _told(error: Exception) -> str:
    """The error in a line, then with its causes and where it was raised."""
    line = shortened(f"{type(error).__name__}: {error}", 600).replace("\n", " ")
    return f"{line}\n{''.join(traceback.format_exception(error, limit=-_FRAMES))}".rstrip()


def facts(device: torch.device) -> dict[str, Callable[[], str]]:
    """What is here, each asked for by itself."""
    known: dict[str, Callable[[], str]] = {
        "lowtide": lambda: version("lowtide"),
        "torch": lambda: str(torch.__version__),
        "Python": lambda: f"{platform.python_version()} on {platform.system()}",
        "beside them": lambda: ", ".join(map(_installed, ("highspy", "numba", "numpy", "transformers"))),
        "C++ compiler": lambda: compiler() or "none: torch.profiler counts bytes on the CPU, blind to other threads",
        "bytes are counted by": lambda: meter_for(device).name,
        "threads": lambda: str(torch.get_num_threads()),
        "memory of the device": lambda: format_bytes(total_memory(device)),
        "deterministic algorithms": lambda: str(torch.are_deterministic_algorithms_enabled()),
    }
    if cuda.type_of(device) == "cuda":
        known |= {
            "GPU": lambda: f"{torch.cuda.get_device_name(device)}, {torch.cuda.get_device_capability(device)}",
            "CUDA, cuDNN": lambda: f"{torch.version.cuda}, {torch.backends.cudnn.version()}",
            "NVIDIA driver": _driver,
            "cuDNN searches for kernels": lambda: str(torch.backends.cudnn.benchmark),
            "free memory": lambda: format_bytes(torch.cuda.mem_get_info(device)[0]),
            "allocator": lambda: f"{torch.cuda.get_allocator_backend()}{_allocator_settings()}",
        }
    return known


def _driver() -> str:
    """As nvidia-smi tells it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return "not told: there is no nvidia-smi here"
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    if told.returncode:
        return f"not told: nvidia-smi ended with {told.returncode}: {shortened(told.stdout + told.stderr, 200)}"
    return ", ".join(dict.fromkeys(told.stdout.split()))


def _allocator_settings() -> str:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return "".join(f", {name}={os.environ[name]}" for name in names if name in os.environ)


def _installed(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"
