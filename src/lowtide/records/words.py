"""The project's vocabulary for phases and roles."""

from enum import StrEnum


class Phase(StrEnum):
    """The part of the iteration that an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


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
