"""Everything lowtide raises on purpose. Each message is one sentence or two: what, where, what to do next."""


class LowtideError(Exception):
    """Base of all errors that lowtide raises on purpose."""


class InputError(LowtideError):
    """A file, an option or an argument is not what it must be."""
