"""The head of the page: which step this is, and the few figures that matter, before and after."""

from dataclasses import dataclass

from lowtide.forecast import Forecast
from lowtide.pages.report.fillers import fillers
from lowtide.pages.report.inputs import ReportInputs
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.records.training_run import PlanFigures, TrainingRun
from lowtide.reporting.style import batch_line, how_measured
from lowtide.units import format_bytes, format_ms


@dataclass(frozen=True)
class Card:
    """One figure: the value large, what it was before, and a line of small print each."""

    label: str
    value: str
    before: str = ""
    change: str = ""
    lines: tuple[str, ...] = ()


def title_of(found: ReportInputs) -> str:
    """The model's name, as far as it is known."""
    if found.run is not None:
        return found.run.model
    if found.profile is not None:
        return found.profile.model
    return "" if found.plan is None else found.plan.step.model


def about(found: ReportInputs) -> tuple[str, ...]:
    """What was measured, where and how."""
    profile, plan, run = found.profile, found.plan, found.run
    if profile is not None:
        return (
            f"{batch_line(profile)}; optimizer: {profile.optimizer}",
            f"{profile.device}, {profile.threads} threads, torch {profile.torch}; times: {how_measured(profile)}; "
            f"bytes: {profile.memory_source}",
        )
    if run is not None:
        machine = f"{run.device}, {run.threads} threads, torch {run.torch}; bytes: {run.memory_source}"
        return (f"{'; '.join(run.batch)}; optimizer: {run.optimizer}", machine)
    if plan is not None:
        step = plan.step
        return (f"{'; '.join(step.batch)}; optimizer: {step.optimizer}", f"{step.device}, torch {step.torch}")
    return ()


def cards(found: ReportInputs) -> list[Card]:
    """The figures, those of the plan first."""
    figures = found.run.plan if found.run is not None else None
    if figures is None and found.plan is not None:
        figures = Forecast(found.plan).figures
    made = []
    if figures is not None:
        made += [_peak(figures, found.run), _time(figures, found.run), _activations(figures, found.plan)]
        made.append(_updates(figures))
    elif found.run is not None:
        made += _unplanned(found.run)
    if found.profile is not None:
        made += _step(found.profile, known_peak=figures is not None)
        made += _largest_filler(found.profile)
    made += _next_budget(found, figures)
    return made


def _peak(plan: PlanFigures, run: TrainingRun | None) -> Card:
    measured, eager = (None, None) if run is None else (run.peak_B, run.eager_peak_B)
    before = plan.unplanned_peak_B if eager is None else eager
    after = plan.predicted_peak_B if measured is None else measured
    lines = [f"budget {format_bytes(plan.budget_B)}"]
    if measured is None:
        lines.append("predicted by the simulator")
    else:
        off = measured / plan.predicted_peak_B - 1
        lines.append(f"measured; predicted {format_bytes(plan.predicted_peak_B)} ({off:+.2%})")
        lines.append("before: eager training beside it" if eager is not None else "before: as captured, predicted")
    return Card("Peak memory", format_bytes(after), format_bytes(before), f"{after / before - 1:+.1%}", tuple(lines))


def _time(plan: PlanFigures, run: TrainingRun | None) -> Card:
    parts = f"recomputing {plan.recompute_overhead:.1%}, packing {plan.pack_overhead:.1%}"
    parts += f", swapping {plan.swap_overhead:.1%}" if plan.swapped.count else ""
    predicted = f"predicted {plan.predicted_overhead:+.1%}: {parts}"
    bound = f"no schedule within the budget is below {plan.bound:+.1%}"
    if run is None or run.overhead is None or run.eager_ms is None:
        value = f"{plan.predicted_overhead:+.1%}"
        return Card("Step time", value, lines=(f"predicted: {parts}", bound))
    spread = f"{min(run.ratios) - 1:+.1%} to {max(run.ratios) - 1:+.1%} over {len(run.ratios)} pairs of steps"
    times = (format_ms(run.step_ms), format_ms(run.eager_ms))
    return Card("Step time", *times, f"{run.overhead:+.1%}", (f"measured, {spread}", predicted, bound))


def _activations(plan: PlanFigures, step: StepPlan | None) -> Card:
    whole = sum(some.bytes for some in (plan.kept, plan.recomputed, plan.packed, plan.swapped))
    lines = [
        f"{some.count:,} {word}, {format_bytes(some.bytes)}"
        for word, some in (("kept", plan.kept), ("recomputed", plan.recomputed))
    ]
    if plan.packed.count:
        into = f" in {format_bytes(plan.packed_into_B)}" if plan.packed_into_B else ""
        lines.append(f"{plan.packed.count:,} packed, {format_bytes(plan.packed.bytes)}{into}")
    if plan.swapped.count:
        most = f"at most {format_bytes(plan.swapped_B)} away at once"
        lines.append(f"{plan.swapped.count:,} swapped, {format_bytes(plan.swapped.bytes)}, {most}")
    if step is not None and step.signs:
        lines.append(f"of those, {len(step.signs)} ReLU results as signs")
    return Card("Activations kept", format_bytes(plan.kept.bytes), format_bytes(whole), lines=tuple(lines))


def _updates(plan: PlanFigures) -> Card:
    if plan.update_parts < 2:
        return Card("Updated early", "0", lines=("all parameters move at the end, in one optimizer.step()",))
    line = f"parameters in {plan.update_parts} parts, as soon as their gradients are complete"
    return Card("Updated early", f"{plan.updates:,}", lines=(line, f"policy {plan.policy}: {plan.note}"))


def _unplanned(run: TrainingRun) -> list[Card]:
    time = Card("Step time", format_ms(run.step_ms), lines=("trained as captured, without a budget",))
    return [time] if run.peak_B is None else [Card("Peak memory", format_bytes(run.peak_B), lines=("measured",)), time]


def _step(profile: Profile, *, known_peak: bool) -> list[Card]:
    op = profile.ops[profile.peak_rank]
    module = op.module or "the loss function"
    where = (
        op.name,
        op.source.rpartition("/")[2] or "no source line",
        f"op {op.rank:,} of {len(profile.ops):,}, in {op.phase.value}",
    )
    label = "Without a plan the peak is in" if known_peak else "Peak memory"
    value = module if known_peak else format_bytes(profile.peak_B)
    always = f"{format_bytes(profile.resident_B)} are always there: parameters, state, batch"
    spread = f"{len(profile.ops):,} ops; spread of the runs {format_ms(profile.step_spread_ms)}"
    return [
        Card(label, value, lines=(*(() if known_peak else (module,)), *where, always)),
        Card("Captured step", format_ms(profile.step_ms), lines=("measured in the profile", spread)),
    ]


def _largest_filler(profile: Profile) -> list[Card]:
    """The module to change first, in one card; all of them have a section of their own."""
    rows = fillers(profile)
    if not rows:
        return []
    first = rows[0]
    share = f"{first.share:.1%} of the peak"
    return [
        Card(
            "Most of the peak is kept by",
            first.module,
            lines=(
                f"{first.count:,} activations, {format_bytes(first.bytes)}: {share}",
                f"making all of them again takes {format_ms(first.recompute_ms)}, "
                f"{first.recompute_ms / (profile.step_ms or 1.0):.1%} of the step",
            ),
        )
    ]


def _next_budget(found: ReportInputs, figures: PlanFigures | None) -> list[Card]:
    """What the next step down costs, as the frontier has it."""
    if not found.frontier:
        return []
    now = max(point.peak_B for point in found.frontier) if figures is None else figures.predicted_peak_B
    smaller = [point for point in found.frontier if point.peak_B < now]
    if not smaller:
        end = format_bytes(min(point.peak_B for point in found.frontier))
        return [Card("A smaller budget", "none", lines=(f"the frontier ends at {end}",))]
    following = max(smaller, key=lambda point: point.peak_B)
    least = min(smaller, key=lambda point: point.peak_B)
    lines = [f"predicted; no schedule is below {following.bound:+.1%}"]
    if least != following:
        lines.append(f"the smallest that was planned: {format_bytes(least.peak_B)} at {least.overhead:+.1%}")
    lines.append("from the frontier record")
    value = format_bytes(following.peak_B)
    return [Card("The next smaller budget", value, change=f"{following.overhead:+.1%} time", lines=tuple(lines))]
