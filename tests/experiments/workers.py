"""Workers for tests: cases in this process, and cases that only pretend."""

from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from lowtide.experiments.case import Case, CaseSettings, Outcome
from lowtide.experiments.case_run import CaseRun
from lowtide.experiments.machine import Machine
from lowtide.experiments.worker import killed_case

MACHINE = Machine("a processor", 2, 2**34, "Linux", "3.11", "2.13", "0.1")


def settings(**changes: Any) -> CaseSettings:
    """Of a small case."""
    plain = CaseSettings(
        model="mlp",
        source="",
        batch_size=4,
        planned=True,
        budget="80%",
        policy="optimal",
        time_limit=1.0,
        steps=2,
        warmup=1,
        op_runs=1,
        image_size=None,
        seq_len=None,
        dropout=None,
        optimizer="adam",
        lr=1e-3,
        seed=0,
        memory_limit_B=None,
        machine=MACHINE,
    )
    return replace(plain, **changes)


class Inside:
    """A real case, without a process of its own."""

    def __init__(self, settings: CaseSettings) -> None:
        self._run = CaseRun(settings)
        self.over = False
        self.peaks: tuple[int, int] | None = None

    def __enter__(self) -> "Inside":
        self._run.begin()
        self.over, self.peaks = self._run.over, self._run.peaks
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to clear away."""

    def do(self, word: str) -> None:
        {"step": self._run.step, "op_by_op": self._run.op_by_op, "give_back": self._run.give_back}[word]()
        self.over = self._run.over

    def end(self) -> Case:
        return self._run.end()


@dataclass
class Pretenders:
    """Makes workers that train nothing, and notes what they were told, in order."""

    peaks: tuple[int, int] | None = (10, 20)
    fails: dict[tuple[bool, int], Outcome] = field(default_factory=dict)
    """By planned and batch size."""
    only_limited: bool = False
    """They fail only under a memory limit."""
    told: list[str] = field(default_factory=list)
    alive: int = 0

    def __call__(self, settings: CaseSettings) -> "Pretender":
        return Pretender(self, settings)


class Pretender:
    """One of them."""

    def __init__(self, all_of_them: Pretenders, settings: CaseSettings) -> None:
        self._all, self._settings = all_of_them, settings
        spared = all_of_them.only_limited and settings.memory_limit_B is None
        fails = {} if spared else all_of_them.fails
        self._outcome = fails.get((settings.planned, settings.batch_size), Outcome.TRAINED)
        self.over = self._outcome is not Outcome.TRAINED
        self.peaks = all_of_them.peaks if settings.planned and not self.over else None
        self._name = "with" if settings.planned else "without"

    def __enter__(self) -> "Pretender":
        self._all.alive += 1
        self._all.told.append(f"{self._name} begins")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._all.alive -= 1
        self._all.told.append(f"{self._name} is gone")

    def do(self, word: str) -> None:
        self._all.told.append(f"{self._name} {word}")

    def end(self) -> Case:
        found = replace(killed_case(self._settings), outcome=self._outcome, failure=None)
        return found if self.over else replace(found, peak_B=1000 * self._settings.batch_size, base_B=7)
