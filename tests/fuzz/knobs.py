"""Places where user code keeps a plain value: modules that multiply by it, and whose value can be turned."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

factor = 1.0
"""A module global that a knob reads."""


class Knob(nn.Module):
    """Multiplies by a value that is kept somewhere."""

    def read(self) -> Any:
        """The value."""
        raise NotImplementedError

    def turn(self, value: float) -> None:
        """Set it."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """x times the value."""
        return x * self.read()  # type: ignore[no-any-return]


class Attribute(Knob):
    """A plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.value = 1.0

    def read(self) -> float:
        return self.value

    def turn(self, value: float) -> None:
        self.value = value


class Private(Knob):
    """Nested dictionaries under a private name."""

    def __init__(self) -> None:
        super().__init__()
        self._settings = {"loss": {"beta": 1.0}}

    def read(self) -> float:
        return self._settings["loss"]["beta"]

    def turn(self, value: float) -> None:
        self._settings["loss"]["beta"] = value


class Config(Knob):
    """A configuration object inside of another."""

    def __init__(self) -> None:
        super().__init__()
        self.cfg = SimpleNamespace(loss=SimpleNamespace(beta=1.0))

    def read(self) -> float:
        return self.cfg.loss.beta  # type: ignore[no-any-return]

    def turn(self, value: float) -> None:
        self.cfg.loss.beta = value


class Listed(Knob):
    """An element of a list of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.values = [[0.5], [1.0]]

    def read(self) -> float:
        return self.values[1][0]

    def turn(self, value: float) -> None:
        self.values[1][0] = value


class Global(Knob):
    """A module global."""

    def read(self) -> float:
        return factor

    def turn(self, value: float) -> None:
        globals()["factor"] = value


class Class(Knob):
    """An attribute of the class."""

    value = 1.0

    def read(self) -> float:
        return self.value

    def turn(self, value: float) -> None:
        type(self).value = value


class Closure(Knob):
    """A variable in the closure of a function."""

    def __init__(self) -> None:
        super().__init__()
        held = 1.0

        def get() -> float:
            return held

        def put(value: float) -> None:
            nonlocal held
            held = value

        self.get, self.put = get, put

    def read(self) -> float:
        return self.get()

    def turn(self, value: float) -> None:
        self.put(value)


class Default(Knob):
    """The default of an argument."""

    def __init__(self) -> None:
        super().__init__()

        def scaled(by: float = 1.0) -> float:
            return by

        self.scaled = scaled

    def read(self) -> float:
        return self.scaled()

    def turn(self, value: float) -> None:
        self.scaled.__defaults__ = (value,)


class Branch(Knob):
    """A Python branch."""

    def __init__(self) -> None:
        super().__init__()
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() if self.on else x.tanh()

    def turn(self, value: float) -> None:
        self.on = value == 1.0


class Kept(Knob):
    """A tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.tensor = torch.tensor(1.0)

    def read(self) -> Tensor:
        return self.tensor

    def turn(self, value: float) -> None:
        self.tensor.fill_(value)


class Replaced(Kept):
    """A tensor that is replaced by another."""

    def turn(self, value: float) -> None:
        self.tensor = torch.tensor(value)


class Held(Knob):
    """A dropout that is no submodule of the model when a loss holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x)  # type: ignore[no-any-return]

    def turn(self, value: float) -> None:
        self.dropout.train(value == 1.0)


class Probability(Knob):
    """The p of a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def turn(self, value: float) -> None:
        self.p = 0.5 * value


KNOBS: dict[str, type[Knob]] = {
    kind.__name__.lower(): kind
    for kind in (
        Attribute,
        Private,
        Config,
        Listed,
        Global,
        Class,
        Closure,
        Default,
        Branch,
        Kept,
        Replaced,
        Held,
        Probability,
    )
}
