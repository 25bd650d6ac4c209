"""What dir() shows of the objects of softnic.MPI."""

from __future__ import annotations


class PublicNames:
    """Hides private attributes from dir(), and so from the suggestions in the text of an AttributeError."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") or name.endswith("__")]
