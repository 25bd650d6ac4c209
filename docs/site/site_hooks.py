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


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the style sheet."""
    pages = {
        "reference/commands.md": command_pages.page(),
        "reference/messages.md": error_texts.page(),
        **python_pages.pages(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "site.css", abs_src_path=str(HERE / "site.css")))
    return files
