"""Free room: whatever fits by its sum fits, nothing is given twice, nothing is lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.device.swap.slots import Extent, Slots


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 60), st.tuples(st.just("give"), st.integers(0, 20))), max_size=60))
def test_against_a_map_of_bytes(requests: list[int | tuple[str, int]]) -> None:
    slots, owner = Slots(), [0] * 150
    slots.give((Extent(0, 100),))
    slots.give((Extent(100, 50),))
    held: list[tuple[int, tuple[Extent, ...]]] = []
    for number, request in enumerate(requests, start=1):
        if isinstance(request, int):
            taken = slots.take(request)
            assert (taken is None) == (request > owner.count(0))
            for start, size in taken or ():
                assert owner[start : start + size] == [0] * size
                owner[start : start + size] = [number] * size
            assert taken is None or sum(extent.size for extent in taken) == request
            held += [(number, taken)] if taken else []
        elif held:
            who, extents = held.pop(request[1] % len(held))
            slots.give(extents)
            owner = [0 if one == who else one for one in owner]
        assert slots.free_bytes == owner.count(0)


def test_one_piece_where_there_is_one() -> None:
    slots = Slots()
    slots.give((Extent(0, 10), Extent(20, 6), Extent(40, 30)))
    assert slots.take(6) == (Extent(20, 6),)
    assert slots.take(9) == (Extent(0, 9),)
    assert slots.take(31) == (Extent(40, 30), Extent(9, 1))
    assert slots.take(1) is None
