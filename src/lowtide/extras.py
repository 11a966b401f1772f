"""What is installed only on demand: `lowtide[models]` and `lowtide[reports]`. Training and planning need neither."""

from importlib.util import find_spec

from lowtide.errors import MissingExtra

EXTRAS = {
    "models": {"transformers": "transformers"},
    "trainer": {"transformers": "transformers", "accelerate": "accelerate"},
    "accelerate": {"accelerate": "accelerate"},
    "lightning": {"lightning": "lightning"},
    "reports": {"matplotlib": "matplotlib", "PIL": "pillow", "jinja2": "jinja2"},
}
"""The packages of each extra: imported as, installed as."""


def need(extra: str, what: str) -> None:
    """Refuse, before any long work, to do `what` where a package of `extra` is missing."""
    missing = [name for package, name in EXTRAS[extra].items() if not _installed(package)]
    if missing:
        raise MissingExtra(f"{what} needs {' and '.join(missing)}: pip install 'lowtide[{extra}]'")


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # refused by a finder, or half imported
        return False
