"""The site builds, strictly, and asks nothing of the network; its quickstart runs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {path.name for path in ROOT.glob("docs/*.md")}


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for page in (tmp_path / "site").glob("*.html"):
        loaded = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)', page.read_text())
        assert loaded == [], page.name
    assert "flush" in (tmp_path / "site" / "api.html").read_text(encoding="utf-8")


def test_the_quickstart_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "quickstart"}
    exec(compile(code, "index.md", "exec"), names)
    assert names["step"].measured_peak <= names["step"].plan.budget
    assert "equal to eager" in capsys.readouterr().out
    assert names["extra"]["outputs"].shape == (512, 256)
