"""Plans made by hand, for the profiles of `synthetic.chain`."""

from lowtide.forecast import Forecast
from lowtide.planning.problem import COMPUTE, Op, Problem, Storage
from lowtide.records.profile import Profile
from lowtide.records.step_plan import Act, Action, Identity, StepPlan
from lowtide.records.training_run import TrainedStep, TrainingRun
from lowtide.records.vocabulary import Phase

from .synthetic import KIB, chain

PACKED_B = 128


def chain_plan(profile: Profile | None = None, *, lane: str = COMPUTE) -> StepPlan:
    """The first activation is packed (or, on another `lane`, swapped), the second recomputed; updates at the end."""
    profile = profile or chain()
    layers = sum(op.phase is Phase.FORWARD for op in profile.ops)
    end = 2 * layers
    storages = [Storage(s.bytes, resident=s.resident, name=s.name) for s in profile.storages]
    ops = []
    for op in profile.ops:
        if op.phase is Phase.FORWARD:
            reads: tuple[int, ...] = (layers + op.rank - 1,) if op.rank else ()
        elif op.phase is Phase.BACKWARD:
            reads = (layers + end - 1 - op.rank, *((layers + op.rank - 1,) if op.rank > layers else ()))
        else:
            reads = tuple(range(2 * layers, 3 * layers))
        once = op.phase is not Phase.FORWARD
        ops.append(Op(op.name, op.runtime_ms, reads, op.makes, workspace=op.workspace_B, once=once))
    actions = [
        Action(Act.UPDATE if op.phase is Phase.OPTIMIZER else Act.RUN, (op.rank,), None, op.module, op.source)
        for op in profile.ops
    ]
    away = len(storages)
    storages.append(Storage(PACKED_B, name="away", off_device=lane != COMPUTE))
    acts = {Act.PACK: (layers, away), Act.UNPACK: (away, layers)}
    if lane != COMPUTE:
        acts = {Act.OFFLOAD: (layers, away), Act.PREFETCH: (away, layers)}
    first = profile.ops[0]
    for act, (read, written) in acts.items():
        ops.append(Op(f"{act}_{first.name}", 0.5, (read,), (written,), optional=True, lane=lane))
        actions.append(Action(act, (), layers, first.module, first.source))
    ops.append(Op(f"release_{first.name}", 0.0, (layers, away), (), optional=True))
    actions.append(Action(Act.RELEASE, (), layers, first.module, first.source))
    problem = Problem(profile.model, tuple(storages), tuple(ops))
    problem.verify()
    out, back, release = end + 1, end + 2, end + 3
    waiting = () if lane == COMPUTE else (release,)
    order = (0, 1, out, 2, *waiting, *range(3, end - 2), back, 1, end - 2, end - 1, end)
    return StepPlan(
        step=Identity("Chain", "Adam", profile.batch, "cpu", "2.13.0", "only step", "hash"),
        budget=8 * layers * KIB // 3,
        policy="optimal",
        unplanned_peak=profile.peak_B,
        rewritten=True,
        problem=problem,
        actions=tuple(actions),
        activations=tuple(range(layers, 2 * layers)),
        order=order,
        exact=problem,
        exact_order=order,
        bound=0.01,
        seconds=0.5,
        note="optimal",
    )


def chain_run(plan: StepPlan | None, model: str = "chain", *, difference: str | None = None) -> TrainingRun:
    """Two steps beside eager training."""
    return TrainingRun(
        model=model,
        batch=chain().batch,
        optimizer="Adam",
        device="cpu",
        torch="2.13.0",
        lowtide="0.1.0",
        threads=2,
        memory_source="allocator shim",
        seed=0,
        accumulate=1,
        clip_grad_norm=None,
        memory_limit_B=None,
        plan=None if plan is None else Forecast(plan).figures,
        startup_s=1.0,
        steps=(TrainedStep(1.0, 11.0, 7000, 10.0, 9000), TrainedStep(0.5, 10.5, 7000, 10.0, 9000)),
        compared=True,
        difference=difference,
    )
