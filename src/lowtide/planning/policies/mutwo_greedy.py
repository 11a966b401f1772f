"""mu-TWO's greedy choice of what to recompute and what to swap, by the paper's own rules (Algorithms B to G).

Purandare, Wasay, Idreos, Jain: "mu-TWO: 3x faster multi-model training with orchestration and memory optimization",
MLSys 2023. The letters in the docstrings are the paper's.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lowtide.planning.policies.activations import Phases
from lowtide.planning.policies.prompt import Prompt, prompt
from lowtide.planning.swaps import Swap, swaps_of


@dataclass(slots=True)
class Candidate:
    """An activation and what the greedy knows of it. Steps are program positions."""

    storage: int
    size: int
    last_forward: int
    first_backward: int
    last_backward: int
    inactive_time: float
    swap: Swap | None
    recomputable: bool
    sources: set[int]
    """The values it is recomputed from."""
    graph: set[int]
    """The ops that recompute it from them."""
    recompute_time: float
    total_time: float
    """D: what recomputing it costs, counting every value that is recomputed from it."""
    count: int = 1

    @property
    def ratio(self) -> float:
        """Bytes won per time lost."""
        return self.size / self.total_time if self.total_time else math.inf


def candidates(phases: Phases) -> dict[int, Candidate]:
    """The activations with the profiler's figures (A)."""
    problem = phases.problem
    activations = set(phases.activations)
    ends = np.cumsum([problem.times[o] for o in problem.program])
    known_swaps = swaps_of(problem)
    found: dict[int, Candidate] = {}
    for s in phases.activations:
        last, first = phases.last_forward(s), phases.first_backward(s)
        sources, graph = _recomputation(phases, s, activations)
        cost = sum(problem.times[o] for o in graph)
        found[s] = Candidate(
            storage=s,
            size=problem.sizes[s],
            last_forward=last,
            first_backward=first,
            last_backward=phases.uses[s][-1],
            inactive_time=float(ends[first - 1] - ends[last]),
            swap=known_swaps.get(s),
            recomputable=not problem.ops[phases.maker[s]].once,
            sources=sources,
            graph=graph,
            recompute_time=cost,
            total_time=cost,
        )
    return found


def _recomputation(phases: Phases, s: int, activations: set[int]) -> tuple[set[int], set[int]]:
    """The values `s` comes from and the ops in between: back to activations, residents and what runs only once."""
    problem = phases.problem
    sources: set[int] = set()
    graph: set[int] = set()
    stack = [phases.maker[s]]
    while stack:
        o = stack.pop()
        if o in graph:
            continue
        graph.add(o)
        for r in problem.reads[o]:
            if r in activations or problem.ops[phases.maker[r]].once:
                sources.add(r)
            else:
                stack.append(phases.maker[r])
    return sources, graph


@dataclass(slots=True)
class Greedy:
    """B: the state of the greedy; `advance` chooses on until the paper's simulator is within a limit."""

    phases: Phases
    left: dict[int, Candidate]
    live: npt.NDArray[np.int64]
    """G: bytes at each step of the program, as the paper counts them."""
    extra: list[float]
    """Recomputation time standing before each step."""
    recomputed: dict[int, Candidate] = field(default_factory=dict)
    swapped: dict[int, Candidate] = field(default_factory=dict)
    prompts: dict[int, Prompt] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """What the paper's simulator says."""
        return int(self.live.max())

    def advance(self, limit: int) -> bool:
        """Choose until the simulated peak is within `limit`; False where no candidate is left to choose."""
        while self.peak > limit:
            swappable = [c for c in self.left.values() if c.swap is not None]
            recomputable = [c for c in self.left.values() if c.recomputable]
            if not swappable and not recomputable:
                return False
            by_swap = max(swappable, key=lambda c: c.inactive_time, default=None)
            by_recompute = max(recomputable, key=lambda c: c.ratio, default=None)
            if by_swap is not None and (
                by_recompute is None or self.swap_overhead(by_swap, limit).stall < by_recompute.total_time
            ):
                self.choose_swap(by_swap, limit)
            else:
                assert by_recompute is not None
                self.choose_recompute(by_recompute, limit)
        return True

    def swap_overhead(self, candidate: Candidate, limit: int) -> Prompt:
        """C: from its first access, or from the last prompt given away where that is earlier."""
        assert candidate.swap is not None
        given = [p.step for p in self.prompts.values()]
        access = min([candidate.first_backward, *given])
        times = [self.phases.problem.times[o] for o in self.phases.problem.program]
        over = (self.live > limit).tolist()
        back = self.phases.problem.times[candidate.swap.prefetch]
        return prompt(back, access, self.phases.split, times, self.extra, over)

    def choose_swap(self, candidate: Candidate, limit: int) -> None:
        """Swap it: out after its last forward use, in at its prompt."""
        where = self.swap_overhead(candidate, limit)
        del self.left[candidate.storage]
        self.swapped[candidate.storage] = candidate
        self.prompts[candidate.storage] = where
        self.live[candidate.last_forward + 1 : where.step] -= candidate.size

    def choose_recompute(self, chosen: Candidate, limit: int) -> None:
        """Recompute it: out after its last forward use, in before its first backward one; update the others (E, F)."""
        del self.left[chosen.storage]
        update_recomputed(chosen, self.recomputed)
        self.recomputed[chosen.storage] = chosen
        update_candidates(chosen, self.left, self.recomputed)
        self.live[chosen.last_forward + 1 : chosen.first_backward] -= chosen.size
        self.extra = [0.0] * len(self.extra)
        for c in self.recomputed.values():
            self.extra[c.first_backward] += c.recompute_time
        self._renew_prompts(limit)

    def _renew_prompts(self, limit: int) -> None:
        """Give the prompts anew, in the order they were given: more time stands in backward now."""
        old, self.prompts = self.prompts, {}
        for s, before in old.items():
            candidate = self.swapped[s]
            self.live[candidate.last_forward + 1 : before.step] += candidate.size
            where = self.swap_overhead(candidate, limit)
            self.prompts[s] = where
            self.live[candidate.last_forward + 1 : where.step] -= candidate.size


def update_recomputed(chosen: Candidate, recomputed: dict[int, Candidate]) -> None:
    """E: values that are recomputed from the chosen one are now recomputed from its sources."""
    chosen.count = 1
    for other in recomputed.values():
        if chosen.storage in other.sources:
            _substitute(other, chosen)
            chosen.count += 1


def update_candidates(chosen: Candidate, left: dict[int, Candidate], recomputed: dict[int, Candidate]) -> None:
    """F: what recomputing the remaining candidates would cost now."""
    for other in left.values():
        if chosen.storage in other.sources:
            if not chosen.first_backward <= other.first_backward <= chosen.last_backward:
                _substitute(other, chosen)
            users = sum(other.storage in c.sources for c in recomputed.values())
            other.total_time = other.recompute_time * (1 + users)
        if other.storage in chosen.sources:
            other.total_time = chosen.count * other.recompute_time


def _substitute(other: Candidate, chosen: Candidate) -> None:
    other.sources.discard(chosen.storage)
    other.sources |= chosen.sources
    other.graph |= chosen.graph
    other.recompute_time += chosen.recompute_time


def start(phases: Phases) -> Greedy:
    """The greedy before its first choice."""
    return Greedy(phases, candidates(phases), program_live(phases), [0.0] * len(phases.problem.program))


def program_live(phases: Phases) -> npt.NDArray[np.int64]:
    """G before anything is chosen: everything lives from where it is made to its last use."""
    problem, end = phases.problem, len(phases.problem.program)
    change = np.zeros(end + 1, dtype=np.int64)
    for s, o in phases.maker.items():
        born = phases.position[o]
        change[born] += problem.sizes[s]
        last = end - 1 if problem.storages[s].keep else max([born, *phases.uses[s][-1:]])
        taken = not problem.storages[s].keep and problem.reuses[problem.program[last]] == s
        change[last + 1 - taken] -= problem.sizes[s]
    workspace = np.array([problem.workspaces[o] for o in problem.program], dtype=np.int64)
    return np.asarray(np.cumsum(change)[:end] + workspace + problem.resident_bytes)
