"""Records go to JSON and come back equal; what is damaged is refused."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.records.codec import Saved
from lowtide.records.vocabulary import Role


@dataclass(frozen=True)
class Leaf:
    """A nested record."""

    name: str
    size: int | None
    role: Role


@dataclass(frozen=True)
class Tree(Saved):
    """A record with every kind of field."""

    FORMAT = "tree/1"

    leaves: tuple[Leaf, ...]
    pair: tuple[int, float]
    table: dict[str, float]
    right: bool


LEAVES = st.builds(Leaf, st.text(max_size=5), st.none() | st.integers(), st.sampled_from(Role))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TREES = st.builds(
    Tree,
    st.lists(LEAVES, max_size=3).map(tuple),
    st.tuples(st.integers(), FLOATS),
    st.dictionaries(st.text(max_size=3), FLOATS, max_size=3),
    st.booleans(),
)


@given(tree=TREES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_equal_after_a_round_trip(tree: Tree, tmp_path: Path) -> None:
    tree.save(tmp_path / "tree.json")
    assert Tree.load(tmp_path / "tree.json") == tree


def test_several_records_are_a_table_and_a_list_is_read_too(tmp_path: Path) -> None:
    tree = Tree((Leaf("a", 1, Role.OTHER), Leaf("b", None, Role.GRADIENT)), (1, 2.0), {}, True)
    path = tmp_path / "tree.json"
    tree.save(path)
    content = json.loads(path.read_text())
    rows: list[list[object]] = [["a", 1, "other"], ["b", None, "gradient"]]
    assert content["leaves"] == {"columns": ["name", "size", "role"], "rows": rows}
    content["leaves"] = [dict(zip(("name", "size", "role"), row, strict=True)) for row in rows]
    path.write_text(json.dumps(content))
    assert Tree.load(path) == tree


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"format": "tree/2"}',
        '{"format": "tree/1", "leaves": [], "pair": [1, 2], "table": {}}',
        '{"format": "tree/1", "leaves": 3, "pair": [1, 2.0], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": [], "pair": [1.5, 2.0], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": [], "pair": [1, 2.0, 3], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": [], "pair": [1, 2.0], "table": {}, "right": 1}',
        '{"format": "tree/1", "leaves": [["a"]], "pair": [1, 2.0], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": {"columns": []}, "pair": [1, 2.0], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": {"columns": [], "rows": [[1]]}, "pair": [1, 2.0], "table": {}, "right": true}',
        '{"format": "tree/1", "leaves": {"columns": ["name", "size"], "rows": [["a", 1]]}, "pair": [1, 2.0], '
        '"table": {}, "right": true}',
        '{"format": "tree/1", "leaves": {"columns": ["name", "name", "role"], "rows": []}, "pair": [1, 2.0], '
        '"table": {}, "right": true}',
        '{"format": "tree/1", "leaves": [], "pair": {"columns": [], "rows": []}, "table": {}, "right": true}',
        "[" * 100_000,
    ],
)
def test_damaged_files_give_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"tree\.json"):
        Tree.load(path)


def test_numbers_that_json_has_no_word_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be saved"):
        Tree((), (1, float("nan")), {}, True).save(tmp_path / "tree.json")
    assert list(tmp_path.iterdir()) == []
