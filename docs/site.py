"""A hook of mkdocs: pages link to files of the repository, which the site has to have a copy of."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what pages show or link to beside them; of a folder, a page in it."""
    wanted = {target for page in ROOT.glob("docs/*.md") for target in _LINK.findall(page.read_text(encoding="utf-8"))}
    for target in sorted(wanted):
        if (ROOT / target).is_file():
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links as they are in the site: files stand beside the pages, folders are named only."""

    def there(found: re.Match[str]) -> str:
        return f"]({found.group(1)}" if (ROOT / found.group(1)).is_file() else found.group(0)

    named = re.sub(r"\[([^\]]*)\]\(\.\./([^)#]+)\)", lambda m: m[0] if (ROOT / m[2]).is_file() else m[1], markdown)
    return _LINK.sub(there, named)
