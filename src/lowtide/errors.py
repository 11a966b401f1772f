"""Everything lowtide raises on purpose. Each message is one sentence or two: what, where, what to do next.

Each error is also the builtin that people catch: ValueError for what was given, RuntimeError for what then happened.
"""

_SHOWN = 60
"""Characters of a foreign value that a message shows."""


class LowtideError(Exception):
    """Base of all errors that lowtide raises on purpose."""


class InputError(LowtideError, ValueError):
    """A file, an option or an argument is not what it must be."""


class PlanMismatch(InputError):
    """A plan file does not fit the training step: it is for another one, or damaged."""


class MissingExtra(LowtideError, ImportError):
    """A package that is installed only on demand is needed and missing: `lowtide[models]`, `lowtide[reports]`."""


class BatchMismatch(LowtideError, ValueError):
    """A batch does not have the shapes and dtypes that the graph was captured for."""


class CaptureError(LowtideError, RuntimeError):
    """The training step cannot be captured; the message names the user's line and what to do."""


class StaleCapture(LowtideError, RuntimeError):
    """Something that the trace took for granted has changed since."""


class EagerMismatch(LowtideError, RuntimeError):
    """The step computed something else than the user's own eager code."""


class RewriteError(LowtideError, RuntimeError):
    """A rewritten step is not the captured one in another order; a bug in lowtide."""


class ProfileError(LowtideError, RuntimeError):
    """What was measured contradicts what the graph promises; a bug in lowtide or in a kernel's meta function."""


class RankFailed(LowtideError, RuntimeError):
    """Another process of the group failed, or is gone; the message names it."""


class PeerLost(RankFailed):
    """A collective did not come about; who is the cause is not known yet."""


def shown(value: object) -> str:
    """A foreign value fit for an error message: on one line and short."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a number too long to print"
    return shortened(text)


def shortened(text: str, limit: int = _SHOWN) -> str:
    """Foreign words fit for an error message: on one line, and cut where they are longer than `limit`."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
