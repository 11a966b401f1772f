"""What the simulator says of a step's plan before it has run: peak, time, waiting, bytes off the device."""

from functools import cached_property
from itertools import accumulate

from lowtide.planning.schedule import instances
from lowtide.planning.simulate import Timeline, simulate
from lowtide.records.step_plan import Act, StepPlan
from lowtide.records.training_run import Amount, PlanFigures


class Forecast:
    """Everything that is predicted of one plan."""

    def __init__(self, plan: StepPlan) -> None:
        self.plan = plan

    @cached_property
    def timeline(self) -> Timeline:
        """What the simulator says of the order."""
        return simulate(self.plan.exact, self.plan.exact_order)

    @property
    def peak(self) -> int:
        """Bytes."""
        return self.timeline.peak if self.plan.rewritten else self.plan.unplanned_peak

    @property
    def overhead(self) -> float:
        """Extra time, as a share of the captured step's."""
        if not self.plan.rewritten:
            return 0.0
        return self.timeline.time / self.plan.base_time - 1 if self.plan.signs else self.timeline.overhead

    @property
    def swap_time(self) -> float:
        """What swapping costs compute: waiting for copies, and what they take from it; also waiting for collectives."""
        problem, releases = self.plan.problem, self.plan.runs_of(Act.RELEASE)
        return self.timeline.waited + sum(n * problem.times[o] for o, n in releases.items())

    @cached_property
    def swapped_bytes(self) -> int:
        """The most bytes that are off the device at once."""
        exact, order = self.plan.exact, self.plan.exact_order
        lived = instances(exact, order)
        change = [0] * (len(order) + 2)
        for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True):
            if exact.storages[s].off_device:
                change[born] += exact.storages[s].bytes
                change[last + 1] -= exact.storages[s].bytes
        return max(accumulate(change))

    @property
    def figures(self) -> PlanFigures:
        """All of it in figures, to be saved."""
        plan, problem, base = self.plan, self.plan.problem, self.plan.problem.base_time or 1.0
        sizes = plan.fate_sizes
        updates = [o for o in plan.order if plan.actions[o].act is Act.UPDATE]
        return PlanFigures(
            budget_B=plan.budget,
            policy=plan.policy,
            rewritten=plan.rewritten,
            unplanned_peak_B=plan.unplanned_peak,
            predicted_peak_B=self.peak,
            predicted_overhead=self.overhead,
            recompute_overhead=plan.recompute_time / base,
            pack_overhead=plan.pack_time / base,
            swap_overhead=self.swap_time / base,
            bound=plan.bound,
            kept=Amount.of(sizes["kept"]),
            recomputed=Amount.of(sizes["recomputed"]),
            packed=Amount.of(sizes["packed"]),
            packed_into_B=sum(problem.storages[s].bytes for o in plan.runs_of(Act.PACK) for s in problem.ops[o].writes),
            swapped=Amount.of(sizes["swapped"]),
            swapped_B=self.swapped_bytes,
            updates=sum(len(plan.actions[o].ranks) for o in updates),
            update_parts=len(updates),
            planning_s=plan.seconds,
            note=plan.note,
        )
