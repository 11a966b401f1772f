"""Which of the tensors that a step starts from lie in the same memory: an update of one is then seen by another."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


@dataclass
class Memory:
    """How it was when the step was captured, and where everything lay when somebody last looked."""

    residents: Sequence[Tensor]
    pointers: list[int]
    sharing: tuple[int, ...]
    batch: tuple[int, ...]
    """For each tensor of the batch, the resident in whose memory it lies; -1 where it has its own."""
    storages: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, residents: Sequence[Tensor], batch: Sequence[Tensor]) -> "Memory":
        """After a trace."""
        here = [x for x in residents if _has_memory(x)]
        made = cls(here, [x.data_ptr() for x in here], (), ())
        made.sharing = made._look()
        made.batch = made.shared_with(batch)
        return made

    def changed(self) -> bool:
        """Do other tensors share their memory now? Most stay where they are, which is quickly seen."""
        now = [x.data_ptr() for x in self.residents]
        if now == self.pointers:
            return False
        self.pointers = now
        return self._look() != self.sharing

    def shared_with(self, batch: Sequence[Tensor]) -> tuple[int, ...]:
        """For each tensor of `batch`, the resident in whose memory it lies."""
        return tuple(self.storages.get(_place(x), -1) if _has_memory(x) else -1 for x in batch)

    def _look(self) -> tuple[int, ...]:
        self.storages = {}
        found = tuple(self.storages.setdefault(_place(x), k) for k, x in enumerate(self.residents))
        self.storages.pop(0, None)  # no bytes, no place
        return found


def _has_memory(x: Tensor) -> bool:
    return not isinstance(x, FakeTensor) and x.device.type != "meta"


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
