"""The largest batches that train under a hard memory limit, eagerly and with a plan."""

from dataclasses import dataclass

from lowtide.experiments.case import Case, Outcome
from lowtide.experiments.machine import Machine
from lowtide.records.codec import Saved


@dataclass(frozen=True)
class Largest(Saved):
    """What the search found; every trial is a case under the limit."""

    FORMAT = "lowtide-largest/1"

    model: str
    memory_limit_B: int
    within: float
    """The search ended where the gap between a batch that trains and one that fails was this share of it, or one."""
    most: int
    """No larger batch was tried."""
    machine: Machine
    trials: tuple[Case, ...]
    eager_need: Case | None
    """The smallest batch that fails eagerly, eagerly and without a limit; None where none failed."""
    planned_there: Case | None
    """The same batch under the limit, with a budget that is a share of what eager needs."""

    def trained(self, *, planned: bool) -> int:
        """The largest batch that trained; 0 where none did."""
        return max((size for size, done in self._tried(planned=planned) if done), default=0)

    def failed(self, *, planned: bool) -> int | None:
        """The smallest batch that failed; None where none did."""
        return min((size for size, done in self._tried(planned=planned) if not done), default=None)

    def _tried(self, *, planned: bool) -> list[tuple[int, bool]]:
        return [
            (case.settings.batch_size, case.outcome is Outcome.TRAINED)
            for case in self.trials
            if case.settings.planned is planned
        ]

    @property
    def base_B(self) -> int | None:
        """What Python and its libraries take of the limit; None where no trial got that far."""
        return max((case.base_B for case in self.trials if case.base_B is not None), default=None)

    @property
    def need_B(self) -> tuple[int, str] | None:
        """What eager needs at the smallest batch that fails, and whether that is `measured` or `predicted`."""
        if self.eager_need is not None and self.eager_need.peak_B is not None:
            return self.eager_need.peak_B, "measured without the limit"
        if self.planned_there is not None and self.planned_there.plan is not None:
            return self.planned_there.plan.figures.unplanned_peak_B, "predicted"
        return None

    @property
    def reduction(self) -> float | None:
        """By how much the planned peak is below eager's need at that batch; None where one is not known."""
        if self.need_B is None or self.planned_there is None or self.planned_there.peak_B is None:
            return None
        return 1 - self.planned_there.peak_B / self.need_B[0]
