"""Pages of the site that are generated while it is built: none of them is a file of the repository.

mkdocs calls `on_files` (docs/site/mkdocs.yml). The reference of commands comes from their argparse parsers
(command_pages.py), that of Python from docstrings by mkdocstrings (python_pages.py), that of node.toml from the
configuration's class (configuration_page.py), and the list of messages from the sources (error_texts.py).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import command_pages  # noqa: E402
import configuration_page  # noqa: E402
import error_texts  # noqa: E402
import python_pages  # noqa: E402

WEIGHTS = {
    "troubleshooting.md": 8.0,
    "codecs.md": 6.0,
    "modes.md": 4.0,
    "monitoring.md": 4.0,
    "glossary.md": 2.0,
    "tutorials/": 2.0,
    "CONTRIBUTING.md": 0.5,
    "reference/": 0.5,
    "reference/configuration.md": 1.0,
    "papers": 0.2,
    "results/": 0.2,
    "performance-ledger.md": 0.001,
}
"""How much pages count in the search, by the longest fitting beginning of their paths; others: 1. A heading counts 20
times."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, the style sheet and the scripts."""
    pages = {
        "reference/commands.md": command_pages.page(),
        "reference/configuration.md": configuration_page.page(),
        "reference/messages.md": error_texts.page(),
        **python_pages.pages(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name in ("site.css", "site.js", "iframe-worker.js"):
        files.append(File.generated(config, name, abs_src_path=str(HERE / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the page's weight in the search."""
    fitting = [start for start in WEIGHTS if page.file.src_uri.startswith(start)]
    if fitting:
        page.meta["search"] = {"boost": WEIGHTS[max(fitting, key=len)]}
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Leave out what modules say to readers of their sources."""
    return re.sub(r"<p>Reading order: .*?</p>", "", html, flags=re.DOTALL)
