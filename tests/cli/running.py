"""Runs the command line in this process."""

import sys

import pytest

from lowtide.cli import main


def run_main(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of `lowtide` with these words."""
    monkeypatch.setattr(sys, "argv", ["lowtide", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    code = caught.value.code
    return code if isinstance(code, int) else 0 if code is None else 1
