"""The pages on frameworks show the examples as they are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SHOWN = re.compile(r"\[(\w+)\.py\]\(\.\./examples/\w+\.py\)[^\n]*\n\n```python\n(.*?)```", re.DOTALL)


def test_every_example_is_shown_in_full() -> None:
    pages = [*ROOT.glob("docs/with_*.md"), ROOT / "docs" / "distributed.md"]
    shown = {name: code for page in pages for name, code in _SHOWN.findall(page.read_text())}
    assert shown == {path.stem: path.read_text() for path in ROOT.glob("examples/*.py")}
