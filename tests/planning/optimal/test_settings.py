"""All that was chosen by trying stands in the settings, with a sentence each."""

import ast
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens

import pytest

from lowtide.planning.optimal import settings
from lowtide.planning.optimal.settings import Charges, Settings, WalkStyle

FOLDER = Path(settings.__file__).parent
PLAIN: set[float] = {0, 1, 2, 3, 100, 0.5}
"""Numbers that choose nothing: ends of ranges, halves, small counts of things that are so many, per cent."""
ALLOWED: dict[str, set[float]] = {
    "frontier.py": {12, 300},  # what `frontier` does where nothing is asked for
    "search.py": {60},  # a time limit where none is given
    "joint.py": {60},
    "choices.py": {4},  # labels
    "steps.py": {60},  # a key behind every other
    "warm.py": {4, 200, 64, 0.01},  # a problem to compile for
}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_constant_outside_of_the_settings(path: Path) -> None:
    if path.name == "settings.py":
        return
    numbers = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    assert numbers <= PLAIN | ALLOWED.get(path.name, set())


@pytest.mark.parametrize("record", [Settings, Charges, WalkStyle])
def test_every_setting_has_a_sentence(record: type) -> None:
    source = Path(settings.__file__).read_text()
    comments = {t.start: t.string for t in generate_tokens(StringIO(source).readline) if t.type == COMMENT}
    above = {line for (line, column), text in comments.items() if column == 4 and not text.startswith("# ---")}
    beside = {line for line, column in comments if column > 4}
    body = next(node for node in ast.parse(source).body if _is_class(node, record))
    assert isinstance(body, ast.ClassDef)
    said = {
        node.target.id
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if node.lineno - 1 in above or node.end_lineno in beside
    }
    assert said == set(record.__annotations__)


def test_no_setting_that_nothing_reads() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted(FOLDER.rglob("*.py"))]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for record in (Settings, Charges, WalkStyle) for name in record.__annotations__} <= read


def _is_class(node: ast.stmt, record: type) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == record.__name__
