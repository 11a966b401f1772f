"""What the pictures of a sweep say above themselves, and the colours of with and without."""

from lowtide.experiments.sweep.record import Sweep
from lowtide.reporting.style import shorten

WITHOUT, WITH = "#0072B2", "#D55E00"


def head_lines(found: Sweep, second: str) -> tuple[str, str]:
    """Two lines of small print: what was trained on what, then `second`."""
    case = found.pairs[0].plain
    machine = found.machine
    return (
        f"budget {found.budget}; optimizer: {shorten(case.optimizer, 40)}; {shorten(machine.processor, 50)}, "
        f"{machine.cores} cores, torch {machine.torch}",
        second,
    )
