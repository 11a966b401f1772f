"""What a framework's log is told of compiled steps: the peak without a plan, predicted, and measured."""

import logging
from typing import Any

from lowtide.compiling.loop import Loop, loops
from lowtide.compiling.settings import settings_of
from lowtide.units import format_bytes

log = logging.getLogger(__name__)


class Peaks:
    """The peaks of the steps that are compiled with `options`, each time that they are new."""

    def __init__(self, options: dict[str, Any]) -> None:
        settings_of(options)  # refuses now what makes no sense
        self.options = options
        self._reported: dict[str, int] = {}
        self._warned = False

    @property
    def loop(self) -> Loop | None:
        """Whose graphs these are; None before the first step."""
        wanted = settings_of(self.options)
        found = (loop for (settings, _), loop in reversed(loops.items()) if settings == wanted)
        return next(found, None)

    def news(self) -> dict[str, int]:
        """Bytes by name after a step; empty where nothing is new. Says once where nothing was compiled."""
        loop = self.loop
        if loop is None and not self._warned:
            self._warned = True
            log.warning(
                "torch.compile has found nothing to compile in this step, so there is no plan: TORCH_LOGS=graph_breaks "
                "shows why; a model that is a bare container of torch.nn needs a class of its own around it"
            )
        if loop is None or loop.measured_peak is None:
            return {}
        plans = [graph.planned.plan for graph in loop.graphs() if graph.planned is not None]
        alone = plans[0] if len(plans) == 1 else None  # of several graphs, nobody has seen a step without plans
        found = {
            "lowtide_unplanned_peak_B": None if alone is None else alone.unplanned_peak,
            "lowtide_predicted_peak_B": loop.predicted_peak,
            "lowtide_measured_peak_B": loop.measured_peak,
        }
        known = {name: value for name, value in found.items() if value is not None}
        if known == self._reported:
            return {}
        self._reported = known
        return known


def sentence(news: dict[str, int]) -> str:
    """Before and after, for people."""
    before = news.get("lowtide_unplanned_peak_B")
    told = "" if before is None else f", without a plan {format_bytes(before)}"
    return f"lowtide: a step takes {format_bytes(news['lowtide_measured_peak_B'])} at its peak{told}"
