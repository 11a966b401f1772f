import pytest

from lowtide.reporting.rank_axis import bins, edges


@pytest.mark.parametrize(("count", "most"), [(1, 300), (299, 300), (301, 300), (6001, 300)])
def test_every_rank_is_in_one_bin(count: int, most: int) -> None:
    spans = bins(count, most)
    assert [rank for span in spans for rank in span] == list(range(count))
    assert len(spans) <= most
    assert max(map(len, spans)) - min(map(len, spans)) <= 1
    assert (edges(spans)[0], edges(spans)[-1]) == (-0.5, count - 0.5)
