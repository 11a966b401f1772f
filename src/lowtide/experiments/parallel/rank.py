"""One kind of step on one rank, told when to take one."""

from functools import partial
from time import perf_counter
from typing import Any

from torch import distributed
from torch.utils.checkpoint import checkpoint

from lowtide.device.meter import ShimMeter
from lowtide.experiments.eager_training import EagerTraining
from lowtide.experiments.parallel.record import Kind, RankStep
from lowtide.experiments.rank_training import Way, find_way, spread_out, with_own_batch
from lowtide.experiments.workload import Workload
from lowtide.forecast import Forecast
from lowtide.models import ModelOptions, build, make_optimizer
from lowtide.models.blocks import blocks_of
from lowtide.parallel.launch import Talk
from lowtide.planning.policies import BudgetInfeasible
from lowtide.profiling.runs import no_collection
from lowtide.training.train_step import TrainStep, train_step


def run_kind(rank: int, talk: Talk, asked: Workload, kind: Kind) -> None:
    """Answers a dictionary when it is ready, or says why it never will be; then a RankStep to every word."""
    meter = ShimMeter()
    meter.start()
    began = perf_counter()
    steps = _Steps(rank, asked, kind)
    try:
        steps.make()
    except BudgetInfeasible as infeasible:  # on all ranks alike
        talk.send((True, {"failure": str(infeasible)}))
        return
    ready = {"failure": None, "startup_s": perf_counter() - began, **steps.model()}
    talk.send((True, ready | steps.promise()))
    while talk.recv() == "step":
        talk.send((True, steps.take(meter)))


class _Steps:
    """A model, spread, and its steps."""

    def __init__(self, rank: int, asked: Workload, kind: Kind) -> None:
        self._kind, self._asked = kind, asked
        options = ModelOptions(asked.image_size, asked.seq_len, asked.dropout)
        self._training = with_own_batch(
            lambda seed: build(asked.model, asked.batch_size, options, seed=seed), asked.seed, rank
        )
        self._parameters = sum(p.numel() for p in self._training.model.parameters())
        self._planned: TrainStep | None = None
        self._eager: EagerTraining | None = None

    def make(self) -> None:
        """Ready for the first step."""
        training, kind, asked = self._training, self._kind, self._asked
        way = find_way(kind.way)
        model = training.model
        for block in blocks_of(model) if kind.checkpoint else ():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        plain = kind.budget_B is not None and way is Way.DDP  # DDP itself would hold what train_step does not need
        model = model if plain else spread_out(model, way, reshard=kind.reshard)
        optimizer = make_optimizer(asked.optimizer, model, asked.lr)
        if kind.budget_B is None:
            self._eager = EagerTraining(model, optimizer, training.loss)
            return
        self._planned = train_step(
            *(model, optimizer, training.batch, training.loss),
            budget=kind.budget_B,
            time_limit=asked.time_limit,
            progress=False,
            sentinel=False,  # only the step itself is measured
            measure="before",
            process_group=distributed.group.WORLD if plain else None,
        )

    def model(self) -> dict[str, Any]:
        """What it is called, and how large it is."""
        return {"model": self._training.name, "parameters": self._parameters}

    def promise(self) -> dict[str, Any]:
        """What a plan says of itself."""
        step = self._planned
        if step is None or step.plan is None:
            return {"predicted": None, "bound": None, "gathered_again": None}
        again = sum(op.purpose == "recompute" and op.op == "lowtide.gather.default" for op in step.graph.ops)
        return {"predicted": Forecast(step.plan).overhead, "bound": step.plan.bound, "gathered_again": again}

    def take(self, meter: ShimMeter) -> RankStep:
        """One, measured. The step's own meter forgets the peak when it begins; `meter` began before the model was."""
        with no_collection():
            began = perf_counter()
            if self._planned is not None:
                loss = self._planned(self._training.batch)
            else:
                assert self._eager is not None
                loss = self._eager.step(self._training.batch)[0]
            ms = 1000 * (perf_counter() - began)
        counted = None if self._planned is None else self._planned.measured_peak
        return RankStep(ms, meter.stop().peak, counted, float(loss[0] if isinstance(loss, tuple) else loss))
