"""Pages of the site that are generated while it is built: none of them is a file of the repository.

mkdocs calls `on_files` (docs/site/mkdocs.yml). The reference of commands comes from their argparse parsers
(command_pages.py), that of Python from docstrings by mkdocstrings (python_pages.py), and the list of messages from the
sources (error_texts.py).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import command_pages  # noqa: E402
import error_texts  # noqa: E402
import python_pages  # noqa: E402

WEIGHTS = {
    "troubleshooting.md": 8.0,
    "glossary.md": 2.0,
    "tutorials/": 2.0,
    "reference/": 0.5,
    "papers.md": 0.5,
    "performance-ledger.md": 0.001,
}
"""How much pages count in the search, by the beginnings of their paths; others: 1. Headings count 1000 times."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, the style sheet and the script."""
    pages = {
        "reference/commands.md": command_pages.page(),
        "reference/messages.md": error_texts.page(),
        **python_pages.pages(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name in ("site.css", "site.js"):
        files.append(File.generated(config, name, abs_src_path=str(HERE / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the page's weight in the search."""
    for start, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": weight}
    return markdown
