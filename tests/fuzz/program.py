"""A random training program as a value: drawn from a seed, printed, saved as JSON, and made smaller."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from tests.fuzz import arithmetic, dense_layers, indexing, reshaping, sequence_layers, spatial_layers, structure
from tests.fuzz.changes import BATCH_CHANGES, KNOB_CHANGES, OTHER_CHANGES
from tests.fuzz.kinds import KINDS
from tests.fuzz.losses import LOSSES
from tests.fuzz.optimizers import OPTIMIZERS

SOURCES = (arithmetic, dense_layers, indexing, reshaping, sequence_layers, spatial_layers, structure)
"""Imported because each registers its kinds."""

INPUTS = {"table": (10,), "sequence": (5, 8), "image": (4, 6, 6), "volume": (2, 4, 4, 4), "tokens": (6,)}
LAYOUTS = ("contiguous", "channels_last", "transposed", "sliced", "expanded", "offset")
DTYPES = ("float32", "float64", "bfloat16", "autocast", "autocast_all", "autocast_around")
"""Autocast around the model, around the loss as well, or around the call of the step."""

DEADLY_IN_BFLOAT16 = ("recurrent", "embedding_bag")
"""oneDNN's LSTM and FBGEMM's embedding end the process on machines without bfloat16 instructions, in eager torch."""


@dataclass(frozen=True)
class Piece:
    """One layer, loss, optimizer or change: its kind, and the seed of its choices."""

    kind: str
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """A model, its loss and optimizer, and how it is trained; any list of layers is valid, so any can be left out."""

    seed: int
    layers: tuple[Piece, ...]
    loss: Piece
    optimizer: Piece
    input: str = "table"
    batch: int = 4
    dtype: str = "float32"
    layout: str = "contiguous"
    accumulate: int = 1
    clip: float | None = None
    budget: str | None = None
    policy: str = "optimal"
    change: Piece | None = None
    frozen: bool = False
    """Every third parameter does not require a gradient."""
    extra: bool = False
    """The loss returns the output beside the loss."""

    @property
    def calls(self) -> int:
        """How often the step is called."""
        return 6 if self.accumulate == 3 else 4

    def to_json(self) -> str:
        """One line, for `python -m tests.fuzz --replay`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Program":
        """The program that `to_json` wrote."""
        given: dict[str, Any] = json.loads(text)
        for name in ("loss", "optimizer", "change"):
            given[name] = None if given[name] is None else Piece(**given[name])
        return cls(**{**given, "layers": tuple(Piece(**layer) for layer in given["layers"])})

    def smaller(self) -> Iterator["Program"]:
        """Programs with one thing less, the most helpful first."""
        plain = replace(self, layers=(), input="table")
        for name in ("change", "budget", "clip", "accumulate", "frozen", "extra", "dtype", "layout", "policy", "batch"):
            default = getattr(Program, name)
            if getattr(self, name) != default:
                yield replace(self, **{name: default})
        half = len(self.layers) // 2
        if half > 1:
            yield replace(self, layers=self.layers[:half])
            yield replace(self, layers=self.layers[half:])
        for place in range(len(self.layers)):
            yield replace(self, layers=self.layers[:place] + self.layers[place + 1 :])
        if self.optimizer != Piece("sgd"):
            yield replace(self, optimizer=Piece("sgd"))
        if self.loss != Piece("plain"):
            yield replace(self, loss=Piece("plain"))
        if self.input != plain.input:
            yield replace(self, input=plain.input)


def draw(random: Random, seed: int) -> Program:
    """A program, valid or not: whether eager torch can run it is seen by running it."""

    def piece(*names: str) -> Piece:
        return Piece(random.choice(names), random.randrange(1000))

    kinds = list(KINDS.values())
    chosen = random.choices(kinds, [kind.weight for kind in kinds], k=random.randint(2, 7))
    dtype = random.choices(DTYPES, (70, 8, 8, 6, 4, 4))[0]
    if dtype not in ("float32", "float64") and any(kind.name in DEADLY_IN_BFLOAT16 for kind in chosen):
        dtype = "float32"
    budget = random.choice(("97%", "92%", "85%", "75%", "60%", "40%")) if random.random() < 0.25 else None
    return Program(
        seed=seed,
        layers=tuple(piece(kind.name) for kind in chosen),
        loss=piece(*LOSSES),
        optimizer=piece(*OPTIMIZERS, "sgd", "adam", "adamw"),
        input=random.choice(("table", "sequence", "sequence", "image", "image", "volume", "tokens")),
        batch=random.choice((3, 4)) if budget is None else random.choice((4, 16)),
        dtype=dtype,
        layout=random.choices(LAYOUTS, (60, 15, 8, 8, 5, 4))[0],
        accumulate=random.choices((1, 2, 3), (75, 15, 10))[0],
        clip=random.choices((None, 0.05, 100.0), (75, 20, 5))[0],
        budget=budget,
        policy="optimal" if budget is None else random.choice(("optimal", "optimal", "mutwo", "chen", "keep_all")),
        change=piece(*random.choice((KNOB_CHANGES, BATCH_CHANGES, OTHER_CHANGES))) if random.random() < 0.45 else None,
        frozen=random.random() < 0.1,
        extra=random.random() < 0.15,
    )
