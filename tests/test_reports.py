"""The committed reports: small enough to clone, and without what can be made from them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_B = 10_000_000


def _committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "reports"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_they_stay_under_ten_megabytes() -> None:
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in _committed() if path.exists()}
    assert sizes, "there are reports"
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    assert sum(sizes.values()) < MOST_B, f"the largest: {[(name, sizes[name]) for name in largest]}"


def test_pictures_have_a_palette() -> None:
    """As `lowtide.reporting.style.save_png` writes them: a third of the bytes of a picture in all colours."""
    pictures = [path for path in _committed() if path.suffix == ".png" and path.parent.name != "scaling"]
    assert pictures
    for path in pictures:
        colour_type = path.read_bytes()[25]
        assert colour_type == 3, path
