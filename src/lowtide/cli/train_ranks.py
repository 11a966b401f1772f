"""`lowtide train --nproc`: the ranks as processes here, each with its part of the training; the first one speaks."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from torch import distributed

from lowtide.cli.options import Chosen
from lowtide.cli.output import wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.cli.train_loop import Wanted, train_loop, write_results
from lowtide.device.limit import limit_memory
from lowtide.experiments.eager_training import EagerTraining
from lowtide.experiments.rank_training import Way, spread_out, with_own_batch
from lowtide.models import make_optimizer
from lowtide.parallel.launch import Launched, Talk
from lowtide.records.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class Shared:
    """What all ranks are told."""

    chosen: Chosen
    batch_size: int
    wanted: Wanted
    way: Way
    advice: str
    folder: Path | None
    names: tuple[str, ...]
    save_plan: Path | None


def train_on_ranks(world: int, shared: Shared) -> list[TrainingRun]:
    """Train on that many ranks; the run of each. The first writes plan and pictures."""
    with Launched(world, _train, shared) as ranks:
        return ranks.answers()


def _train(rank: int, talk: Talk, shared: Shared) -> None:
    chosen, wanted = shared.chosen, shared.wanted
    with resources_suffice(shared.batch_size, shared.advice):
        if wanted.memory_limit is not None:
            limit_memory(wanted.memory_limit, "cpu")
        training = with_own_batch(lambda seed: chosen.build(shared.batch_size, seed), chosen.seed, rank)
        # DDP would hold a second copy of all gradients, which train_step does not need: copies of a model are plain.
        sharded = shared.way is Way.FSDP
        model = spread_out(training.model, shared.way) if sharded else training.model
        optimizer = make_optimizer(chosen.optimizer, model, chosen.lr)
        twin = None
        if wanted.compare:
            other = spread_out(chosen.build(shared.batch_size).model, shared.way)
            twin = EagerTraining(
                *(other, make_optimizer(chosen.optimizer, other, chosen.lr), training.loss),
                accumulate=wanted.accumulate,
                clip_grad_norm=wanted.clip_grad_norm,
            )
        console = wide_console() if rank == 0 else Console(quiet=True)
        group = None if sharded else distributed.group.WORLD
        run, step = train_loop(training, optimizer, wanted, console, group=group, twin=twin)
        if rank == 0:
            write_results(run, step, shared.folder, shared.names, shared.save_plan)
    talk.send((True, run))
