"""Records of experiments made by hand, every kind of outcome among them."""

from dataclasses import replace

from lowtide.experiments.case import Activations, Case, Outcome, Part, PlannedCase, Turns
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.op_times import OpTimes
from lowtide.experiments.policies.record import Policies, PolicyRow
from lowtide.experiments.swap.record import Method, SwapComparison, SwapRow
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.records.training_run import Amount, PlanFigures
from lowtide.records.transfer import TransferSample
from tests.experiments.workers import MACHINE, Pretender, Pretenders, settings

MIB = 2**20
_ROLES = ("parameter", "gradient", "activation", "optimizer_state", "other", "workspace")
FATES = Activations(Amount(5, 100), Amount(7, 200), Amount(2, 50), Amount(0, 0))


def case(*, planned: bool, ms: tuple[float, ...] = (10.0, 12.0, 11.0), peak: int = 600 * MIB, batch: int = 4) -> Case:
    """A case that trained."""
    found = Pretender(Pretenders(), settings(planned=planned, batch_size=batch)).end()
    some = FATES.kept, FATES.recomputed, FATES.packed
    figures = PlanFigures(
        *(
            700 * MIB,
            "optimal",
            True,
            1000 * MIB,
            590 * MIB,
            0.10,
            0.1,
            0.0,
            0.0,
            0.05,
            *some,
            10,
            FATES.swapped,
            0,
            1,
            1,
            0.1,
            "",
        ),
    )
    return replace(
        found,
        outcome=Outcome.TRAINED,
        turns=Turns.STEP_BY_STEP,
        losses=(1.0, 0.5, 0.25),
        ms=ms,
        peak_B=peak,
        parts=tuple(Part(role, peak // len(_ROLES)) for role in _ROLES),
        ops=OpTimes(8.0, 1.0, 1.0 if planned else 0.0, 0.0, 0.0, 0.0, 0.0),
        plan=PlannedCase(figures, FATES, 11.0, 10.0) if planned else None,
    )


def failed(outcome: Outcome, *, planned: bool, batch: int, why: str = "why") -> Case:
    """A case that did not train."""
    found = Pretender(Pretenders(), settings(planned=planned, batch_size=batch)).end()
    return replace(found, outcome=outcome, failure=why, peak_B=None)


def sweep(model: str = "net", why: str = "why") -> Sweep:
    """Trained, infeasible, out of memory."""
    pairs = (
        Pair(4, case(planned=True), case(planned=False, ms=(9.0, 10.0, 9.5), peak=1000 * MIB)),
        Pair(8, failed(Outcome.INFEASIBLE, planned=True, batch=8, why=why), case(planned=False, batch=8)),
        Pair(16, case(planned=True, batch=16), failed(Outcome.OUT_OF_MEMORY, planned=False, batch=16)),
    )
    return Sweep(model, "60%", MACHINE, pairs)


def largest(model: str = "net") -> Largest:
    """Eager up to 4, planned up to 16."""
    trials = (
        case(planned=False),
        failed(Outcome.OUT_OF_MEMORY, planned=False, batch=8),
        case(planned=True, batch=16),
        failed(Outcome.INFEASIBLE, planned=True, batch=32),
    )
    need, there = case(planned=False, peak=1000 * MIB, batch=8), case(planned=True, batch=8)
    return Largest(model, 900 * MIB, 0.0, 64, MACHINE, trials, need, there)


def policies(model: str = "net") -> Policies:
    """Three policies at two budgets: one without a plan, one with a plan that was too slow to run."""
    ops = OpTimes(8.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    none = (None, None, None, None, None, None, (), None)
    rows = [PolicyRow("keep_all", 900, None, "captured", 900, 900, 0.0, 0.0, 0.0, FATES, (10.0, 11.0), ops)]
    rows.append(PolicyRow("keep_all", 500, "no schedule", "", *none))
    rows.append(PolicyRow("optimal", 900, None, "captured", 900, 900, 0.0, 0.0, 0.0, FATES, (10.0, 11.0), ops))
    rows.append(PolicyRow("optimal", 500, None, "plan 1", 490, 490, 0.2, 0.15, 1.0, FATES, (12.0, 14.0), ops))
    rows.append(PolicyRow("mutwo", 500, None, "", 495, None, 30.0, 0.0, 1.0, FATES, (), None))
    head = (model, ("batch: float32[4]",), "SGD", "cpu", "2.13", 2, "allocator shim", 1, 300, 900, 500)
    return Policies(*head, (10.0, 10.0), 900, (10.0, 11.0), 900, ops, tuple(rows))


def ways(model: str = "net") -> SwapComparison:
    """One budget: recomputed, not to be had by swaps alone, and both, in which one round waited for copies."""
    base = OpTimes(8.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    planned = case(planned=True).plan
    assert planned is not None
    figures = replace(planned.figures, swapped=Amount(3, 30 * MIB), swapped_B=30 * MIB)
    again = OpTimes(8.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0)
    swapping = OpTimes(8.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5)
    rows = (
        SwapRow(0.5, 700, Method.RECOMPUTE, None, planned.figures, 600 * MIB, (12.0, 12.0), (0.0, 0.0), again),
        SwapRow(0.5, 700, Method.SWAP, "no schedule", None, None, (), (), None),
        SwapRow(0.5, 700, Method.BOTH, None, figures, 590 * MIB, (11.0, 11.0), (0.2, 0.2), swapping),
    )
    copies = (TransferSample(2**20, 1.0, 0.5),)
    head = (model, ("batch: float32[4]",), "SGD", "cpu", "2.13", 2, "allocator shim", copies, "disk, direct I/O", 0.4)
    return SwapComparison(*head, 1, 300, 900, (10.0, 10.0), (10.0, 10.0), base, rows)
