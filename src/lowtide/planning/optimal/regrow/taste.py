"""How ruin and recreate walks, as those say who ask for it: apart from what is compiled, and imports nothing of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Taste:
    """How a walk goes. Heat and weight are in units that fit any problem."""

    hot: float
    cold: float
    """Worsening that is accepted with probability 1 / e at the start and at the end, in mean times of an op."""
    pool: int = 12
    """Most drops that are compared before one is made."""
    most: int = 12
    """Most ops that one drop runs again."""
    weight: float = 10.0
    """What all of the room in excess at one step costs while the order does not fit, in times of the program."""
