"""What a trace took for granted, compared before each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lowtide.watching.caches import Filling
from lowtide.watching.holders import Container, Holder
from lowtide.watching.memory import Memory
from lowtide.watching.settings import Settings, change, torch_settings
from lowtide.watching.values import MISSING, Copies, described, same
from lowtide.watching.watcher import Effect, Watcher


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a trace took for granted, and what it is now."""

    name: str
    before: Any = None
    after: Any = None
    holder: Holder | None = None
    key: Any = None

    @property
    def may_be_lifted(self) -> bool:
        """Is it a number in a place that can be written to?"""
        numbers = type(self.before) is float and type(self.after) is float
        return numbers and self.holder is not None and self.holder.writable

    def __str__(self) -> str:
        if self.before is None and self.after is None:
            return f"{self.name} has changed"
        return f"{self.name} has changed from {described(self.before)} to {described(self.after)}"


@dataclass(frozen=True)
class Guards:
    """The places of the user's Python that a trace may have read, with what they held, and torch's settings."""

    holders: Sequence[Holder]
    copies: Copies
    settings: Settings
    memory: Memory
    settled: Sequence[Effect] = ()
    """What the user's first own forward will change; the step is the same before and after that."""
    kept: list[Filling] = field(default_factory=list)
    """What its functions will keep of their results, until that has happened."""

    @classmethod
    def of(
        cls, watcher: Watcher, settings: Settings, memory: Memory, settled: Sequence[Effect], kept: Sequence[Filling]
    ) -> "Guards":
        """After a trace, once everything is put back."""
        return cls(watcher.guarded(), watcher.copies, settings, memory, settled, list(kept))

    def changed(self) -> Change | None:
        """The first value that is not what the trace read; None where the trace still holds."""
        name = change(self.settings, torch_settings())
        if name is not None:
            return Change(name)
        for holder in self.holders:
            key = holder.stale(self.copies)
            if key is not MISSING:
                if self._settled_there(holder) and self._has_settled:
                    continue
                return Change(holder.name(key), *holder.values_at(key), holder, key)
        there = next((filling for filling in self.kept if filling.is_there), None)
        if there is not None:  # from another trace, of other values maybe
            return Change(f"what {there.function.__name__}() keeps")
        if self.memory.changed():
            return Change("which parameters and buffers share their memory")
        return None

    def expect(self, change: Change, value: Any) -> None:
        """The trace was made while something stood in the place of `change`: this is what counts there."""
        assert change.holder is not None
        for holder in self.holders:
            if holder.owner is change.holder.owner and type(holder) is type(change.holder):
                holder.expect(change.key, value)
                if isinstance(holder, Container):
                    self.copies[id(holder.owner)] = holder.copy

    def settle(self) -> None:
        """The first step has run, and in eager it would have left these changes behind: from now on they are there,
        so that the next capture starts from where eager would be. Where they are more than plain values, none is made:
        an object of a trace stays in the trace."""
        while self.kept:
            self.kept.pop().again()
        if all(effect.is_plain for effect in self.settled):
            for effect in self.settled:
                if effect.holder.values_at(effect.key)[1] is effect.before:
                    effect.holder.put(effect.key, effect.after)

    def _settled_there(self, holder: Holder) -> bool:
        """Is every change of this holder one that was foreseen?"""
        foreseen = {effect.key for effect in self.settled if effect.holder is holder}
        return bool(foreseen) and holder.read.intersection(holder.changed(self.copies)) <= foreseen

    @property
    def _has_settled(self) -> bool:
        return all(same(effect.after, effect.holder.values_at(effect.key)[1], self.copies) for effect in self.settled)
