"""What a user asks of the backend: by `options=`, by `lowtide.configure` or by the environment, in this order."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lowtide.errors import InputError, shown
from lowtide.planning.policies import policy as find_policy
from lowtide.units import parse_bytes

EXECUTORS = ("eager", "inductor")
"""What can run the planned graphs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """As in `configure`, which says what they mean; refused where they make no sense."""

    budget: int | str | None = None
    executor: str = "eager"
    reserve: int | str | None = None
    policy: str = "optimal"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            object.__setattr__(self, "budget", parse_bytes(self.budget))
        if self.reserve is not None:
            object.__setattr__(self, "reserve", parse_bytes(self.reserve))
        if self.executor not in EXECUTORS:
            raise InputError(f"there is no executor {shown(self.executor)}; there are {', '.join(EXECUTORS)}")
        find_policy(self.policy)
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"time_limit must be a number of seconds above 0, not {shown(self.time_limit)}")

    @property
    def budget_bytes(self) -> int | None:
        """None where nothing is planned."""
        return None if self.budget is None else parse_bytes(self.budget)

    @property
    def reserve_bytes(self) -> int:
        """0 where what lives outside is measured."""
        return 0 if self.reserve is None else parse_bytes(self.reserve)


_configured: dict[str, Any] = {}


def configure(
    *,
    budget: int | str | None = None,
    reserve: int | str | None = None,
    executor: str = "eager",
    policy: str = "optimal",
    time_limit: float | None = None,
) -> None:
    """Set what `torch.compile(..., backend="lowtide")` takes where it is given no options, as by many frameworks.

    `budget` is the most device bytes at any time of a training step, everything included: bytes or "4GiB"; None plans
    nothing. `reserve` is what will live outside of the compiled graphs, such as the optimizer's state: without it that
    is measured, and planned again where it has grown. `executor` is "eager", aten's own kernels one after another, or
    "inductor", which compiles both halves of each plan. `policy` and `time_limit` are those of `train_step`. It counts
    for what is compiled from now on; what is left out is as if it had never been set.
    """
    given = Settings(budget, executor, reserve, policy, time_limit)
    _configured.clear()
    _configured.update({f.name: getattr(given, f.name) for f in fields(given) if getattr(given, f.name) != f.default})


def settings_of(options: Mapping[str, Any] | None) -> Settings:
    """What counts for one graph."""
    given = dict(options or {})
    _refuse_unknown(given)
    named = {"budget": "LOWTIDE_BUDGET", "reserve": "LOWTIDE_RESERVE"}
    environment = {key: os.environ[name] for key, name in named.items() if os.environ.get(name)}
    return replace(Settings(), **{**environment, **_configured, **given})


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(Settings)]
    for name in options:
        if name not in known:
            raise InputError(f"there is no option {shown(name)}; there are {', '.join(known)}")
