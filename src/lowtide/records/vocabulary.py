"""The project's vocabulary for phases, roles and purposes."""

from enum import StrEnum


class Phase(StrEnum):
    """The part of the iteration that an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Purpose(StrEnum):
    """Why an op is in a step: it is part of the program, or a plan put it there."""

    PROGRAM = "program"
    RECOMPUTE = "recompute"
    PACK = "pack"
    UNPACK = "unpack"
    STATE = "state"
    """Notes the random generator's state, for an op that will be run again."""
    OFFLOAD = "offload"
    RELEASE = "release"
    """Waits for the copy out."""
    PREFETCH = "prefetch"
    ARRIVE = "arrive"
    """Waits for the copy back."""
    START = "start"
    """Starts a collective, which an op of the program waits for."""


class Role(StrEnum):
    """What a storage is for; every tensor has exactly one."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    """The gradient of a parameter, complete."""
    ACTIVATION = "activation"
    """Made in forward, read in backward, not a parameter."""
    OPTIMIZER_STATE = "optimizer_state"
    OTHER = "other"
    """Batch, buffers, the loss, and what only forward or only backward needs."""
