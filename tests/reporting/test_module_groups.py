from lowtide.reporting.module_groups import module_groups


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
