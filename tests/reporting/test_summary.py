from dataclasses import replace
from io import StringIO

from rich.console import Console

from lowtide.records.profile import Profile
from lowtide.reporting.summary import summary

from .synthetic import chain, one_op
from .test_csv_files import NASTY


def _shown(profile: Profile) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(summary(profile))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_says_what_a_user_wants_to_know() -> None:
    profile = chain()
    text = _shown(profile)
    op = profile.ops[profile.peak_rank]
    for part in (op.name, op.module, op.source, f"{profile.peak_B:,} bytes", "allocator shim", "optimizer state"):
        assert part in text
    assert "Largest of 3 activations (3.00 KiB)" in text
    assert "op6" in text.partition("Slowest")[2].splitlines()[2]


def test_times_that_say_little_are_called_so() -> None:
    profile = chain()
    total = sum(op.runtime_ms for op in profile.ops)
    steady = replace(profile, step_ms=total, step_spread_ms=0.0)
    assert "WARNING" not in _shown(steady)
    assert "plain runs differ by 50%, so the op times say little" in _shown(replace(steady, step_spread_ms=total / 2))
    assert "the ops add up to -50%" in _shown(replace(steady, step_ms=2 * total))


def test_names_are_no_markup_and_stay_on_their_line() -> None:
    text = _shown(chain(prefix=NASTY.replace("\udcff", "")))
    assert "[bold]" in text
    assert 'a,"b" <script>' in text


def test_little_to_show() -> None:
    assert "Largest of 0 activations (0 B)" in _shown(chain(activations=False))
    assert "rank 0 of 1" in _shown(one_op())
