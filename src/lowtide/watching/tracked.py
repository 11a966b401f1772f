"""A float that says whether somebody looked at it, other than by computing with it."""

from collections.abc import Callable
from typing import Any


class Tracked(float):
    """Stands for a value of the user's during a trace. Sums and products of it are tracked too."""

    looked_at: list[str]
    """The names of the questions that were asked of it; shared by all that was computed from it."""

    def __new__(cls, value: float, looked_at: list[str] | None = None) -> "Tracked":
        """The value as it is, with an empty record unless one is handed on."""
        made = super().__new__(cls, value)
        made.looked_at = [] if looked_at is None else looked_at
        return made


def _computing(name: str) -> Callable[..., Any]:
    def method(self: Tracked, *args: Any) -> Any:
        result = getattr(float, name)(self, *args)
        return Tracked(result, self.looked_at) if type(result) is float else result

    return method


def _looking(name: str) -> Callable[..., Any]:
    def method(self: Tracked, *args: Any) -> Any:
        self.looked_at.append(name)
        return getattr(float, name)(self, *args)

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos", "abs", "pow", "rpow"):
    setattr(Tracked, f"__{_name}__", _computing(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "bool", "int", "float", "hash", "round", "trunc", "floor", "ceil"):
    setattr(Tracked, f"__{_name}__", _looking(f"__{_name}__"))
for _name in ("is_integer", "as_integer_ratio", "hex", "conjugate"):
    setattr(Tracked, _name, _looking(_name))
for _name in ("floordiv", "rfloordiv", "mod", "rmod", "divmod", "rdivmod", "repr", "str", "format"):
    setattr(Tracked, f"__{_name}__", _looking(f"__{_name}__"))
