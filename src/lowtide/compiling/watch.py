"""Device bytes over time, as the loop sees them: now, and at the highest since it was last asked."""

import torch

from lowtide.device.live import live_bytes
from lowtide.device.meter import meter_for


class Watch:
    """Device bytes now and at the highest since it was last asked, whoever took them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        meter = meter_for(device)
        self.is_free = meter.free
        self._meter = meter if meter.free or device.type == "cuda" else None
        """None where torch.profiler would have to count, which the user may want for himself."""
        self.now = 0
        self._running = False

    def note(self, *, anew: bool = False) -> int:
        """The highest since the last time; from here on it counts anew. `anew` looks at all tensors there are."""
        self.stop()
        peak = self._peak
        if anew or self._meter is None:
            self.now = live_bytes(self._device)
        if self._meter is not None:
            self._meter.start()
            self._running = True
        self._peak = self.now
        return peak

    _peak = 0

    def stop(self) -> None:
        """No more counting until the next note."""
        if self._running and self._meter is not None:
            taken = self._meter.stop()
            self._peak, self.now = max(self._peak, self.now + taken.peak), self.now + taken.net
            self._running = False
