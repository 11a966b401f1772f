from lowtide.reporting.style import Scale, op_label, shorten


def test_shortens_at_the_front_and_keeps_to_the_font() -> None:
    assert shorten("encoder.layer.11.output", 12) == "…r.11.output"
    assert shorten("a\nb\tc", 10) == "a b c"
    assert shorten("x\U0001f6f0\udcffy", 10) == "x??y"
    assert op_label("mm_1", "") == "mm_1"
    assert op_label("mm_1", "encoder.dense") == "mm_1 · encoder.dense"


def test_units_follow_the_largest_value() -> None:
    assert [Scale.of_bytes(n).unit for n in (0, 1023, 2**10, 2**20, 2**30, 2**40)] == [
        *("B", "B", "KiB", "MiB", "GiB", "GiB")
    ]
    assert [Scale.of_ms(n).unit for n in (0, 9_999, 10_000)] == ["ms", "ms", "s"]
