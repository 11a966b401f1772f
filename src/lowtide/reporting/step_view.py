"""StepView: one step as page and trace show it: what runs when, and what fills the memory meanwhile."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from lowtide.planning.problem import COMPUTE
from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.style import ROLE_COLOURS, ROLE_WORDS, WORKSPACE_COLOUR

PROGRAM, UPDATE = "program", "update"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one op."""

    name: str
    op: str
    """What it calls; empty where only the plan is known."""
    module: str
    source: str
    phase: str
    """Empty where only the plan is known, and of ops that a plan put there."""
    kind: str
    """`program`, `update`, `recompute`, `pack`, `unpack`, `swap`, or `collective` under way."""
    lane: str
    start_ms: float
    ms: float


@dataclass(frozen=True, slots=True)
class Layer:
    """The bytes of one kind while each op runs."""

    word: str
    colour: str
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class StepView:
    """Runs in order, and the layers of memory over them from the bottom to the top."""

    title: str
    how: str
    """Where times and bytes come from."""
    runs: tuple[Run, ...]
    layers: tuple[Layer, ...]

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """Device bytes while each op runs, its workspace included."""
        return tuple(map(sum, zip(*(layer.bytes for layer in self.layers), strict=True)))

    @property
    def peak(self) -> int:
        """The most bytes at once."""
        return max(self.totals)

    @property
    def ms(self) -> float:
        """Until the last op has ended."""
        return max(run.start_ms + run.ms for run in self.runs)


def measured_view(profile: Profile) -> StepView:
    """The step as it was captured and measured op by op."""
    ends = accumulate(op.runtime_ms for op in profile.ops)
    runs = tuple(
        Run(
            name=op.name,
            op=op.op,
            module=op.module,
            source=op.source,
            phase=op.phase.value,
            kind=UPDATE if op.phase is Phase.OPTIMIZER else PROGRAM,
            lane=COMPUTE,
            start_ms=end - op.runtime_ms,
            ms=op.runtime_ms,
        )
        for op, end in zip(profile.ops, ends, strict=True)
    )
    alive = profile.role_bytes()
    layers = [Layer(word, ROLE_COLOURS[role], tuple(alive[role])) for role, word in ROLE_WORDS.items()]
    layers.append(Layer("workspace", WORKSPACE_COLOUR, tuple(op.workspace_B for op in profile.ops)))
    how = f"measured op by op; bytes: {profile.memory_source}"
    return StepView("as captured", how, runs, tuple(layers))
