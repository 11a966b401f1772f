from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.experiments.swap.record import Method, SwapComparison
from lowtide.pages.readme import swap_table
from tests.experiments.records import ways


def test_what_swapping_removes_is_a_share_of_what_recomputing_costs() -> None:
    found = ways()
    assert found.removed(0.5) == pytest.approx(0.5)
    assert replace(found, rows=found.rows[:2]).removed(0.5) is None
    parts = found.accounting(found.rows[2], found.rows[2].wait_ms)
    assert (parts.difference, parts.swap, parts.swap_wait, parts.other) == pytest.approx((1.0, 0.5, 0.2, 0.3))


def test_the_readmes_table(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    ways().save(tmp_path / "net" / "swap.json")
    assert SwapComparison.load(tmp_path / "net" / "swap.json") == ways()
    (row,) = [line for line in swap_table(tmp_path).splitlines() if line.startswith("| net")]
    assert row == (
        "| net | 50% | +20.0% (+20% to +20%), predicted +10.0% | no plan "
        "| +10.0% (+10% to +10%), predicted +10.0% | +5.0% | 50% |"
    )
    assert [way.value for way in Method] == ["recompute only", "swap only", "both"]
