"""Profile: what one training step does and costs, op by op, as measured. Everything later starts from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape

from lowtide.records.codec import Saved
from lowtide.records.sound import check_profile
from lowtide.records.transfer import TransferSample
from lowtide.records.vocabulary import Phase, Purpose, Role
from lowtide.units import format_bytes, format_ms


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """Bytes on the device; views of it cost nothing and keep it alive."""

    name: str
    bytes: int
    role: Role
    resident: bool
    """There before and after the step: parameters, buffers, optimizer state, the batch."""
    created: int | None
    """Rank of the op that makes it; None for residents."""
    last: int | None
    """Rank of the last op during which it is alive; None for residents."""


@dataclass(frozen=True, slots=True)
class InnerOp:
    """An aten op that ran inside another op, such as the optimizer's."""

    op: str
    count: int
    runtime_ms: float
    peak_B: int
    """The most bytes that one of them took above what was alive before the outer op."""


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op of the step, in the order of execution. `reads`, `writes`, `makes` are indices into `storages`."""

    rank: int
    name: str
    op: str
    phase: Phase
    module: str
    source: str
    """The user's `file:line`."""
    role: Role
    """Of the first tensor that it makes."""
    runtime_ms: float
    """Median of the measured runs."""
    runtime_spread_ms: float
    """Longest minus shortest of the measured runs."""
    active_mem_B: int
    """Device bytes alive while it runs: residents, what it reads and makes, all that is read later."""
    peak_mem_B: int
    """The highest point while it runs, workspace included."""
    output_B: int
    """Bytes of the storages that it makes; 0 for views and in-place writes."""
    workspace_B: int
    """Bytes that it takes only while it runs: peak_mem_B - active_mem_B."""
    shape: tuple[int, ...]
    """Of the first tensor that it makes."""
    dtype: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    makes: tuple[int, ...]
    forward: int | None
    """Of a backward op: rank of the forward op that it is the backward of."""
    is_view: bool
    is_random: bool
    is_effect: bool
    overwrites: int | None
    """The storage whose bytes its result takes over, an in-place op; that storage ends before this op."""
    repeats: bool
    """It can run again with the same result and without its effect."""
    purpose: Purpose
    """Part of the program, or put there by a plan."""
    alone_B: int
    """Of an update: its workspace when it runs by itself, not as part of one `optimizer.step()`."""
    inner: tuple[InnerOp, ...]
    """Of an optimizer update: the aten ops inside it."""


@dataclass(frozen=True, slots=True)
class ActivationRecord:
    """An activation and its mu-TWO metrics."""

    name: str
    """Of the op that makes it."""
    storage: int
    module: str
    source: str
    created: int
    last_fw_use: int
    first_bw_use: int
    last_bw_use: int
    memory_size_B: int
    inactive_time_ms: float
    """From the end of the last forward use to the start of the first backward use."""
    swap_time_ms: float
    """One transfer, in the slower direction, at the bandwidth measured for this size."""
    recomp_time_ms: float
    """Time of the ops that make it again from residents and other activations."""
    recomp_memory_B: int
    """The most bytes that making it again takes, itself included, its sources not."""
    recompute_ratio: float
    """memory_size_B / recomp_time_ms."""
    recomp_srcs: tuple[int, ...]
    """Storages of the activations that it is made from."""
    recomp_ops: tuple[int, ...]
    """Ranks of the ops that make it again."""


@dataclass(frozen=True, slots=True)
class PackRecord:
    """An activation that can be kept in fewer bytes, and what that was measured to cost."""

    storage: int
    kind: str
    """`bits`, or the integer type of the packed form."""
    bytes: int
    """Of the packed form."""
    pack_ms: float
    unpack_ms: float
    pack_workspace_B: int
    unpack_workspace_B: int


@dataclass(frozen=True, slots=True)
class LayerRow:
    """All ops of one phase that belong to one layer (a module that owns parameters)."""

    layer: str
    phase: Phase
    ops: int
    runtime_ms: float
    output_B: int
    peak_mem_B: int


@dataclass(frozen=True)
class Profile(Saved):
    """One measured training step."""

    FORMAT = "lowtide-profile/3"

    model: str
    optimizer: str
    batch: tuple[str, ...]
    """One line per tensor of the batch: path, dtype, shape."""
    device: str
    device_memory_B: int
    """What the device has in all: the limit line in plots."""
    memory_source: str
    """Who counted the bytes: the allocator shim, torch.profiler or CUDA's statistics."""
    torch: str
    threads: int
    warmup: int
    runs: int
    step_ms: float
    """Median time of a plain run of the whole graph, measured in the same session."""
    step_spread_ms: float
    step_peak_B: int
    """Measured peak of a plain run, residents included."""
    storages: tuple[StorageRecord, ...]
    ops: tuple[OpRecord, ...]
    activations: tuple[ActivationRecord, ...]
    packs: tuple[PackRecord, ...]
    transfer: tuple[TransferSample, ...]
    transfer_tier: str
    """Where the swapped bytes go: `disk` for CPU tensors, `host` for CUDA tensors."""
    transfer_drag: float
    """Milliseconds that compute loses for every MiB that goes out and comes back, where nothing waits; measured only
    for training that swaps, 0 otherwise."""
    layers: tuple[str, ...]
    """Paths of the modules that own parameters."""

    @property
    def peak_rank(self) -> int:
        """Rank of the op at which memory is highest."""
        return max(range(len(self.ops)), key=lambda rank: self.ops[rank].peak_mem_B)

    @property
    def peak_B(self) -> int:
        """The highest point of the per-op timeline."""
        return self.ops[self.peak_rank].peak_mem_B

    @property
    def resident_B(self) -> int:
        """Parameters, buffers, optimizer state, the batch."""
        return sum(storage.bytes for storage in self.storages if storage.resident)

    def role_bytes(self) -> dict[Role, list[int]]:
        """Bytes alive of each role while each op runs; with the op's workspace they add up to its peak."""
        change = {role: [0] * (len(self.ops) + 1) for role in Role}
        for storage in self.storages:
            row = change[storage.role]
            if storage.resident:
                row[0] += storage.bytes
            elif storage.created is not None and storage.last is not None:
                row[storage.created] += storage.bytes
                row[storage.last + 1] -= storage.bytes
        return {role: list(_running(row[:-1])) for role, row in change.items()}

    @cached_property
    def layer_of(self) -> tuple[str, ...]:
        """For every op the layer it counts to: its nearest module that owns parameters.

        An op outside of any (an activation function, the loss) counts to the layer before it; a backward op to the
        layer of the forward op behind it, an update to the layer of its parameter.
        """
        layers = set(self.layers)
        assigned: list[str] = []
        current = self.layers[0] if self.layers else ""
        for op in self.ops:
            own = next((path for path in _ancestors(op.module) if path in layers), None)
            if op.phase is Phase.FORWARD:
                current = own or current
                assigned.append(current)
            elif op.forward is not None:
                assigned.append(assigned[op.forward])
            else:
                assigned.append(own or (assigned[-1] if assigned else current))
        return tuple(assigned)

    def by_layer(self) -> tuple[LayerRow, ...]:
        """The profile with one row per layer and phase, in order of first execution."""
        groups: dict[tuple[str, Phase], list[OpRecord]] = {}
        for op, layer in zip(self.ops, self.layer_of, strict=True):
            groups.setdefault((layer, op.phase), []).append(op)
        return tuple(
            LayerRow(
                layer,
                phase,
                len(ops),
                sum(op.runtime_ms for op in ops),
                sum(op.output_B for op in ops),
                max(op.peak_mem_B for op in ops),
            )
            for (layer, phase), ops in groups.items()
        )

    def _repr_html_(self) -> str:
        """For notebooks: where the peak is, and the largest activations."""
        op = self.ops[self.peak_rank]
        largest = sorted(self.activations, key=lambda a: -a.memory_size_B)[:5]
        rows = [
            ("step", f"{format_ms(self.step_ms)}, {len(self.ops):,} ops, {self.model}, {self.optimizer}"),
            ("peak", f"{format_bytes(self.peak_B)}, of it {format_bytes(self.resident_B)} resident"),
            ("at", f"{op.name} ({op.module or 'root'}, {op.source})"),
            *(("activation", f"{format_bytes(a.memory_size_B)}: {a.name} ({a.module}, {a.source})") for a in largest),
        ]
        cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows)
        return f"<table>{cells}</table>"

    def check(self) -> None:
        """Every number names something."""
        check_profile(self)


def _running(changes: list[int]) -> Iterator[int]:
    total = 0
    for change in changes:
        total += change
        yield total


def _ancestors(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""
