from lowtide.reporting.module_groups import OUTSIDE, REST, largest_kinds, module_groups, module_kind


def test_layers_open_as_long_as_they_stay_readable() -> None:
    modules = ["", "head", *(f"body.layer.{k}.{part}" for k in range(12) for part in ("attention", "dense"))]
    assert set(module_groups(modules, 20)) == {"", "head", *(f"body.layer.{k}" for k in range(12))}
    assert set(module_groups(modules, 10)) == {"", "head", "body.layer"}
    assert module_groups(modules, 100) == modules


def test_a_small_part_does_not_open_below_the_level_of_a_large_one() -> None:
    modules = [f"large.{k}.{j}" for k in range(3) for j in range(30)] + [f"small.0.0.{j}" for j in range(3)]
    assert set(module_groups(modules, 12)) == {"large.0", "large.1", "large.2", "small.0.0"}


def test_nothing_and_a_module_with_children_of_its_own() -> None:
    assert module_groups([], 5) == []
    assert module_groups(["a", "a.b", "a.c"], 5) == ["a", "a.b", "a.c"]


def test_modules_alike_are_one_kind() -> None:
    assert module_kind("encoder.layer.11.output") == "encoder.layer.*.output"
    assert module_kind("") == OUTSIDE
    sized = [("a.0", 3.0), ("b", 4.0), ("a.1", 2.0), ("c", 1.0), ("", 0.5)]
    assert largest_kinds(sized, 4) == ["a.*", "b", "c", OUTSIDE]
    assert largest_kinds(sized, 3) == ["a.*", "b", REST]
    assert largest_kinds([], 3) == []
