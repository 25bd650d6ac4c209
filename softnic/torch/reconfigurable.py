"""A process group whose ranks change: it has one group of softnic after the other, and settings that outlive them."""

from __future__ import annotations

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import EXACT, Compression


class Reconfigurable:
    """Base of such process groups. `compress` and `stats` take them as they take a SoftnicGroup."""

    def __init__(self) -> None:
        self._present: SoftnicGroup | None = None
        self._compression = EXACT

    @property
    def compression(self) -> Compression:
        """Of this object: of its present group, and of all later ones."""
        return self._compression

    @compression.setter
    def compression(self, compression: Compression) -> None:
        self._compression = compression
        if self._present is not None:
            self._present.compression = compression

    def present_group(self) -> SoftnicGroup:
        """Return the group of the present ranks. Raises ValueError before the first one, and after the last."""
        if self._present is None:
            raise ValueError("the process group has no ranks yet, or was shut down: it has to be configured")
        return self._present

    def become(self, group: SoftnicGroup | None) -> None:
        """Use a group from now on; None: no calls are made."""
        if group is not None:
            group.compression = self._compression
        self._present = group
