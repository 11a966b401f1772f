"""Devices that a step can be planned for without having them: bytes and rates, each with its source."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lowtide.device.clock import total_memory
from lowtide.errors import InputError, shown
from lowtide.fitting.calibration import Calibration
from lowtide.profiling.estimate import Rates

HERE = "this machine"
CONTEXT_B = 1 << 30
"""What the driver and its libraries take of a GPU before the first tensor; an assumption: half to one and a half."""
MATMUL_SHARE, BANDWIDTH_SHARE = 0.55, 0.75
"""Of the rates in the datasheet, what training reaches, where the data file does not say it of a device."""
NETWORK_SHARE = 0.8
"""Of the rate of a network card."""
BYTES_ERROR_HERE, TIME_ERROR_HERE = 0.01, 0.5
"""Of this CPU: what the tests hold bytes to, and what to expect of times that nobody has calibrated."""
START_MS = 0.004
"""To launch a kernel."""
_NEEDED_KEYS = {"name", "memory_MiB", "bandwidth_GB_s", "tflops", "peer_GB_s", "source"}
_MORE_KEYS = {"network_GB_s", "reached"}
_REACHED = {"matmul", "attention"}
_NETWORK_GB_S = 50
"""Each device with a card of its own of 400 Gbit/s, where nothing else is known."""


@dataclass(frozen=True)
class Device:
    """What is known of a device."""

    key: str
    name: str
    memory_B: int
    usable_B: int
    """Of it, what tensors can have."""
    rates: Rates
    peer_bytes_per_ms: float
    """Between two of them, one direction."""
    source: str
    network_bytes_per_ms: float = NETWORK_SHARE * _NETWORK_GB_S * 1e6
    """Of one of them to another node, one direction."""
    gpu: bool = True
    """Torch's choices there: its caching allocator, its attention kernels, foreach."""
    bytes_error: float = 0.05
    time_error: float = 0.33
    """Shares by which what was measured has differed, or may: docs/fit.md."""


def known_devices() -> dict[str, dict[str, Any]]:
    """The data file, by name."""
    text = resources.files("lowtide.fitting").joinpath("devices.json").read_text(encoding="utf-8")
    devices: dict[str, dict[str, Any]] = json.loads(text)
    return devices


def find_device(name: str) -> Device:
    """A device by its name, `this machine`, or the path of a JSON file with the same fields as the data file."""
    if name == HERE:
        return this_machine()
    known = known_devices()
    if name in known:
        return _device(name, known[name])
    path = Path(name)
    if path.suffix != ".json":
        raise InputError(
            f"unknown device {shown(name)}: write one of {', '.join(known)}, {HERE!r}, or the path of a .json file "
            "with the fields of one of them"
        )
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the device in {shown(name)}: {error}") from None
    if isinstance(facts, dict) and facts.get("format") == Calibration.FORMAT:
        return _calibrated(Calibration.load(path))
    return _device(path.stem, facts)


def _calibrated(found: Calibration) -> Device:
    """A CPU that `lowtide bench fit` has measured: each kind of op with its own share of the rates."""
    rates = Rates(
        bytes_per_ms=found.bytes_per_ms,
        flops_per_ms={"float32": found.flops_per_ms},
        start_ms=found.start_ms,
        times={kind.kind: kind.times(found.start_ms) for kind in found.kinds},
    )
    return Device(
        "calibrated",
        f"{found.machine}, calibrated",
        found.memory_B,
        found.memory_B,
        rates,
        rates.bytes_per_ms,
        f"lowtide bench fit, {len(found.steps)} steps",
        gpu=False,
        bytes_error=found.bytes_error,
        time_error=found.time_error,
    )


def _device(key: str, facts: Any) -> Device:
    if not isinstance(facts, dict) or not _NEEDED_KEYS <= set(facts) <= _NEEDED_KEYS | _MORE_KEYS:
        raise InputError(
            f"the device {shown(key)} must have the fields {', '.join(sorted(_NEEDED_KEYS))}, may have "
            f"{' and '.join(sorted(_MORE_KEYS))}, and no others"
        )
    numbers = [facts["memory_MiB"], facts["bandwidth_GB_s"], facts["peer_GB_s"], *_rates(facts["tflops"])]
    network = facts.get("network_GB_s", _NETWORK_GB_S)
    positive = all(isinstance(x, int | float) and 0 < x < 1e9 for x in (*numbers, network))
    if not positive or "float32" not in facts["tflops"]:
        raise InputError(
            f"the device {shown(key)} needs numbers above zero for its memory and rates, and tflops of float32 at least"
        )
    reached = facts.get("reached", {})
    shares = _rates(reached)
    if not set(reached) <= _REACHED or not all(isinstance(x, int | float) and 0 < x <= 1 for x in shares):
        raise InputError(
            f"the device {shown(key)} has a share of its matrix rate that is reached of {shown(sorted(reached))}: "
            f"write shares from 0 to 1 of {' and '.join(sorted(_REACHED))}"
        )
    memory = int(facts["memory_MiB"]) << 20
    products = reached.get("matmul", MATMUL_SHARE)
    rates = Rates(
        bytes_per_ms=BANDWIDTH_SHARE * facts["bandwidth_GB_s"] * 1e6,
        flops_per_ms={dtype: products * rate * 1e9 for dtype, rate in facts["tflops"].items()},
        start_ms=START_MS,
        times={"attention": products / reached.get("attention", products)},
        peer_bytes_per_ms=BANDWIDTH_SHARE * facts["peer_GB_s"] * 1e6,
        workspaces={},
    )
    return Device(
        key,
        str(facts["name"]),
        memory,
        memory - CONTEXT_B,
        rates,
        rates.peer_bytes_per_ms,
        str(facts["source"]),
        NETWORK_SHARE * network * 1e6,
    )


def _rates(tflops: Any) -> list[Any]:
    return list(tflops.values()) if isinstance(tflops, dict) else [None]


def this_machine() -> Device:
    """The CPU here: its rates are measured, which takes a second."""
    memory = total_memory(torch.device("cpu"))
    big, small = torch.ones(1 << 25), torch.ones(768, 768)
    copied = min(_seconds(lambda: big.add_(1.0)) for _ in range(5))
    multiplied = min(_seconds(lambda: small @ small) for _ in range(20))
    rate = 2 * 768**3 / multiplied / 1e3
    rates = Rates(bytes_per_ms=2 * big.nbytes / copied / 1e3, flops_per_ms={"float32": rate}, start_ms=0.005)
    source = "measured now: one addition in place, one matrix product"
    return Device(
        HERE,
        HERE,
        memory,
        memory,
        rates,
        rates.bytes_per_ms,
        source,
        gpu=False,
        bytes_error=BYTES_ERROR_HERE,
        time_error=TIME_ERROR_HERE,
    )


def _seconds(work: Any) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin
