"""Every prediction that any experiment has put to the test, gathered from the records under a folder."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from lowtide.errors import InputError
from lowtide.experiments.budgets.record import Budgets
from lowtide.experiments.case import Case
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.policies.record import Policies
from lowtide.experiments.predictions.record import Prediction
from lowtide.experiments.swap.record import SwapComparison
from lowtide.experiments.sweep.record import Sweep
from lowtide.records.training_run import TrainingRun


def predictions(folder: Path) -> list[Prediction]:
    """From all records of experiments below `folder`, sorted by file."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    found: list[Prediction] = []
    for path in sorted(folder.rglob("*.json")):
        read = _READERS.get(path.name)
        if read is not None:
            found += read(path, str(path.relative_to(folder)))
    if not found:
        names = ", ".join(_READERS)
        raise InputError(f"no planned case of any experiment is below {folder}: none of {names} holds one")
    return found


def _budgets(path: Path, file: str) -> Iterator[Prediction]:
    record = Budgets.load(path)
    for row in record.rows:
        if row.predicted_peak_B is not None and row.measured_peak_B is not None and row.predicted_overhead is not None:
            peaks = row.predicted_peak_B, row.measured_peak_B
            time = _time(record.captured_ms, row.predicted_overhead, row.ms)
            yield Prediction(file, "budgets", record.model, f"{row.left:.0%} of the bytes left", *peaks, *time)


def _policies(path: Path, file: str) -> Iterator[Prediction]:
    record = Policies.load(path)
    seen = set()
    for row in record.rows:
        if row.predicted_peak_B is None or row.measured_peak_B is None or row.predicted_overhead is None:
            continue
        if row.step not in seen:
            seen.add(row.step)
            peaks = row.predicted_peak_B, row.measured_peak_B
            time = _time(record.captured_ms, row.predicted_overhead, row.ms)
            yield Prediction(file, "policies", record.model, f"{row.policy} in {row.budget_B} bytes", *peaks, *time)


def _ways(path: Path, file: str) -> Iterator[Prediction]:
    record = SwapComparison.load(path)
    for row in record.rows:
        if row.plan is not None and row.measured_peak_B is not None:
            peaks = row.plan.predicted_peak_B, row.measured_peak_B
            time = _time(record.captured_ms, row.plan.predicted_overhead, row.ms)
            yield Prediction(file, "swap", record.model, f"{row.left:.0%} of the bytes left, {row.way}", *peaks, *time)


def _training(path: Path, file: str) -> Iterator[Prediction]:
    record = TrainingRun.load(path)
    if record.plan is not None and record.peak_B is not None:
        eager = [step.eager_ms for step in record.warm if step.eager_ms is not None]
        time = _time(eager, record.plan.predicted_overhead, [step.ms for step in record.warm])
        peaks = record.plan.predicted_peak_B, record.peak_B
        yield Prediction(file, "training", record.model, f"budget {record.plan.budget_B} bytes", *peaks, *time)


def _sweep(path: Path, file: str) -> Iterator[Prediction]:
    for pair in Sweep.load(path).pairs:
        if pair.planned.plan is None:
            continue
        where = (file, "sweep", pair.planned.model)
        plan = pair.planned.plan.figures
        if pair.planned.peak_B is not None:
            time = _time(pair.plain.ms, plan.predicted_overhead, pair.planned.ms)
            peaks = plan.predicted_peak_B, pair.planned.peak_B
            yield Prediction(*where, f"batch size {pair.batch_size}", *peaks, *time)
        if pair.plain.peak_B is not None:
            peaks = plan.unplanned_peak_B, pair.plain.peak_B
            yield Prediction(*where, f"batch size {pair.batch_size}, no plan", *peaks, None, None, None, None)


def _largest(path: Path, file: str) -> Iterator[Prediction]:
    record = Largest.load(path)
    cases: list[Case] = [*record.trials, *([record.planned_there] if record.planned_there else [])]
    for case in cases:
        if case.plan is not None and case.peak_B is not None:
            what = f"batch size {case.settings.batch_size}, budget {case.plan.figures.budget_B} bytes"
            peaks = case.plan.figures.predicted_peak_B, case.peak_B
            yield Prediction(file, "largest", record.model, what, *peaks, None, None, None, None)


def _time(
    reference: Sequence[float], overhead: float, ms: Sequence[float]
) -> tuple[float | None, float | None, float | None, float | None]:
    """Predicted, measured, fastest and slowest; nothing where no reference step or no planned step ran."""
    if not reference or not ms:
        return None, None, None, None
    return median(reference) * (1 + overhead), median(ms), min(ms), max(ms)


_READERS: dict[str, Callable[[Path, str], Iterator[Prediction]]] = {
    "budgets.json": _budgets,
    "policies.json": _policies,
    "swap.json": _ways,
    "training.json": _training,
    "sweep.json": _sweep,
    "largest.json": _largest,
}
