"""All files of one profile."""

from collections.abc import Callable, Iterator
from pathlib import Path

from lowtide.records.profile import Profile
from lowtide.reporting.activation_idle import draw_activation_idle
from lowtide.reporting.activation_size import draw_activation_size
from lowtide.reporting.csv_files import write_activation_stats, write_node_stats, write_optimizer_stats
from lowtide.reporting.memory_breakdown import draw_memory_breakdown
from lowtide.reporting.memory_vs_rank import draw_memory_vs_rank
from lowtide.reporting.node_memory import draw_node_memory
from lowtide.reporting.node_runtime import draw_node_runtime

MEMORY_VS_RANK = "profiler_plots_memory_vs_rank.png"
_WRITERS: dict[str, Callable[[Profile, Path], None]] = {
    "profile.json": Profile.save,
    "profiler_stats_node_stats.csv": write_node_stats,
    "profiler_stats_activation_stats.csv": write_activation_stats,
    "profiler_stats_optimizer_stats.csv": write_optimizer_stats,
    "profiler_plots_node_runtime.png": draw_node_runtime,
    "profiler_plots_node_peak_memory.png": draw_node_memory,
    "profiler_plots_activation_memory_size.png": draw_activation_size,
    "profiler_plots_activation_inactive_time.png": draw_activation_idle,
    "peak_memory_breakdown.png": draw_memory_breakdown,
}
PROFILE_FILES = (*_WRITERS, MEMORY_VS_RANK)


def write_profile_files(profile: Profile, folder: Path, *, budget: int | None = None) -> Iterator[str]:
    """Write every file of `PROFILE_FILES` into `folder`; yields the name of each once it is there."""
    for name, write in _WRITERS.items():
        write(profile, folder / name)
        yield name
    draw_memory_vs_rank(profile, folder / MEMORY_VS_RANK, budget=budget)
    yield MEMORY_VS_RANK
