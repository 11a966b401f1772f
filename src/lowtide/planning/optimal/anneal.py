"""Simulated annealing on small problems: which ops run again in which gap of the program, peak and time weighed.

Whatever set of runs is chosen, the order is valid: a gap's runs stand in program order, and what they read has been
written before. So the search walks freely through orders over the budget, which costs, towards those within it.
"""

import math
import random
from collections.abc import Callable, Sequence
from itertools import accumulate

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.work import STEP, charge

MOST_STEPS = 4
"""Longest order that is walked through, in lengths of the program."""


class Annealing:
    """The state is a set of (gap, program position): the op at that position runs again before the gap's own."""

    def __init__(self, facts: Facts, budget: int, seed: int) -> None:
        problem = facts.problem
        self.facts, self.chance = facts, random.Random(seed)
        self.room = budget - problem.resident_bytes
        program = problem.program
        self.reads = [problem.reads[o] for o in program]
        self.writes = [problem.writes[o] for o in program]
        self.times = [problem.times[o] for o in program]
        self.workspaces = [problem.workspaces[o] for o in program]
        self.again = [not problem.ops[o].once for o in program]
        self.reuses = [problem.reuses[o] for o in program]
        self.sizes, self.kept = problem.sizes, problem.kept
        self.scale = problem.base_time or 1.0
        self.gaps: dict[int, set[int]] = {}
        self.least = math.inf
        self.best: list[int] | None = None
        self.best_extra = math.inf
        self.least_order: list[int] = []
        self.steps: list[tuple[int, int]] = []
        self.born: list[int] = []
        self.last: list[int] = []
        self.storage: list[int] = []
        self.live: list[int] = []

    def begin(self, order: Sequence[int]) -> None:
        """Start from an order; its optional runs are left out."""
        self.gaps, done = {}, 0
        for o in order:
            k = self.facts.position[o]
            if k == done:
                done += 1
            elif k >= 0:
                self.gaps.setdefault(done, set()).add(k)

    def run(self, moves: int, *, weight: float, hot: float, cold: float, enough: Callable[[], bool]) -> None:
        """Anneal until `enough`; `weight` is what all of the room in excess costs, in shares of the program's time."""
        chance = self.chance
        current = self._evaluate(weight)
        for move in range(moves):
            if move % 500 == 499 and enough():
                return
            temperature = hot * (cold / hot) ** (move / moves)
            changes = self._propose()
            if not changes:
                continue
            state = self.steps, self.born, self.last, self.storage, self.live
            for gap, k in changes:
                self._toggle(gap, k)
            cost = self._evaluate(weight)
            if cost <= current or chance.random() < math.exp((current - cost) / temperature):
                current = cost
            else:
                for gap, k in changes:
                    self._toggle(gap, k)
                self.steps, self.born, self.last, self.storage, self.live = state

    def _toggle(self, gap: int, k: int) -> None:
        there = self.gaps.setdefault(gap, set())
        there ^= {k}
        if not there:
            del self.gaps[gap]

    def _evaluate(self, weight: float) -> float:
        """Extra time and excess, as one number; remembers the best order within the room and the least peak."""
        reads, writes, sizes = self.reads, self.writes, self.sizes
        charge(STEP * len(self.steps))
        steps: list[tuple[int, int]] = []
        for gap in range(len(reads)):
            if gap in self.gaps:
                steps.extend((k, gap) for k in sorted(self.gaps[gap]))
            steps.append((gap, gap))
        newest: dict[int, int] = {}
        born: list[int] = []
        last: list[int] = []
        storage: list[int] = []
        for step, (k, _) in enumerate(steps):
            for s in reads[k]:
                last[newest[s]] = step
            for s in writes[k]:
                newest[s] = len(born)
                born.append(step)
                last.append(step)
                storage.append(s)
        end = len(steps)
        for s in self.kept:
            last[newest[s]] = end
        change = [0] * (end + 2)
        for s, low, high in zip(storage, born, last, strict=True):
            change[low] += sizes[s]
            taken = high < end and self.reuses[steps[high][0]] == s
            change[high + 1 - taken] -= sizes[s]
        workspaces = self.workspaces
        live = [size + workspaces[k] for size, (k, _) in zip(accumulate(change), steps, strict=False)]
        self.steps, self.born, self.last, self.storage, self.live = steps, born, last, storage, live
        extra = sum(self.times[k] for k, gap in steps if k != gap) / self.scale
        peak = max(live)
        if peak < self.least:
            self.least, self.least_order = peak, [self.facts.problem.program[k] for k, _ in steps]
        if peak <= self.room:
            if extra < self.best_extra:
                self.best_extra, self.best = extra, [self.facts.problem.program[k] for k, _ in steps]
            return extra
        room = max(1, self.room)
        spread = sum([size - room for size in live if size > room]) / (room * len(live))
        return extra + weight * ((peak - room) / room + spread)

    def _propose(self) -> list[tuple[int, int]]:
        chance = self.chance
        draw = chance.random()
        there = [(gap, k) for gap, ks in self.gaps.items() for k in ks] if draw > 0.5 else []
        if there and draw > 0.75:
            return [chance.choice(there)]
        if there:
            gap, k = chance.choice(there)
            shift = chance.choice((1, 1, -1, 2, -2, 3, -4, 8))
            to = gap + shift
            if to <= k or to >= len(self.reads) or k in self.gaps.get(to, ()):
                return [(gap, k)]
            return [(gap, k), (to, k)]
        return self._drop() if len(self.steps) < MOST_STEPS * len(self.reads) else []

    def _drop(self) -> list[tuple[int, int]]:
        """Drop a value that is idle at a high step and make it again for its next use, with or without its inputs."""
        chance, live = self.chance, self.live
        high = max(live) if chance.random() < 0.5 else self.room
        over = [step for step, size in enumerate(live) if size >= high] or [chance.randrange(len(live))]
        step = chance.choice(over)
        idle = [
            i
            for i, (low, end) in enumerate(zip(self.born, self.last, strict=True))
            if low < step < end and self.sizes[self.storage[i]]
        ]
        chance.shuffle(idle)
        for i in idle[:4]:
            s = self.storage[i]
            following = next((t for t in range(step, len(live)) if s in self.reads[self.steps[t][0]]), None)
            if following is None or following == step:
                continue
            k, gap = self.facts.born[s], self.steps[following][1]
            if not self.again[k] or k >= gap or k in self.gaps.get(gap, ()):
                continue
            changes = {(gap, k)}
            if chance.random() < 0.5:
                self._with_inputs(k, gap, following, changes, chance.choice((1, 3, 9)))
            return sorted(changes)
        return []

    def _with_inputs(self, k: int, gap: int, step: int, changes: set[tuple[int, int]], most: int) -> None:
        """Add runs for inputs that are not alive at the step."""
        alive = {s for s, low, high in zip(self.storage, self.born, self.last, strict=True) if low < step <= high}
        stack = [k]
        while stack and len(changes) <= most:
            for s in self.reads[stack.pop()]:
                maker = self.facts.born[s]
                if s in alive or not self.again[maker] or maker in self.gaps.get(gap, ()) or (gap, maker) in changes:
                    continue
                changes.add((gap, maker))
                stack.append(maker)
