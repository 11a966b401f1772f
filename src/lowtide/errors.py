"""Everything lowtide raises on purpose. Each message is one sentence or two: what, where, what to do next."""


class LowtideError(Exception):
    """Base of all errors that lowtide raises on purpose."""


class InputError(LowtideError):
    """A file, an option or an argument is not what it must be."""


class CaptureError(LowtideError):
    """The training step cannot be captured; the message names the user's line and what to do."""


class BatchMismatch(LowtideError):
    """A batch does not have the shapes and dtypes that the graph was captured for."""


class StaleCapture(LowtideError, RuntimeError):
    """Something that the trace took for granted has changed since."""


class EagerMismatch(LowtideError, RuntimeError):
    """The step computed something else than the user's own eager code."""


class RewriteError(LowtideError):
    """A rewritten step is not the captured one in another order; a bug in lowtide."""


class ProfileError(LowtideError):
    """What was measured contradicts what the graph promises; a bug in lowtide or in a kernel's meta function."""
