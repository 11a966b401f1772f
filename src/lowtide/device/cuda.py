"""What torch's CUDA allocator says of itself, and which device is meant."""

import torch


def type_of(device: torch.device) -> str:
    """The kind of a device: this package asks here and nowhere else, so that a test can answer for a GPU."""
    return device.type


def indexed(device: torch.device) -> torch.device:
    """`device` with its number: "cuda" alone is the current device, of the thread that asks, when it asks."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def asked_bytes(device: torch.device) -> tuple[int, int]:
    """Bytes that tensors have asked for: now, and the most since the peak statistics were reset.

    Not `allocated_bytes`, which counts the blocks of at least 512 bytes that each request is rounded up to: a storage
    says what it asked for, so predicted and measured figures count the same thing, and the same on every device. What
    rounding adds is below 512 bytes for each live tensor. (CUDA's own asynchronous allocator keeps no such count; there
    it is the allocated bytes.) The statistics are the host's, kept as it asks and gives
    back in the order of the program: nothing has to wait for the device.
    """
    stats = torch.cuda.memory_stats(device)
    kind = "requested_bytes" if torch.cuda.get_allocator_backend() == "native" else "allocated_bytes"
    return int(stats.get(f"{kind}.all.current", 0)), int(stats.get(f"{kind}.all.peak", 0))


def forget_peak(device: torch.device) -> None:
    """Reset the peak statistics of `device`, which are the user's as well."""
    torch.cuda.reset_peak_memory_stats(device)
