"""How one engine is split: the sizes of its layout."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """How one engine is split; each of its `data` ranks is a server of its own."""

    tensor: int
    pipeline: int
    data: int = 1

    @property
    def world_size(self) -> int:
        """Return the number of devices."""
        return self.tensor * self.pipeline * self.data

    @property
    def name(self) -> str:
        """Return the split as people write it."""
        if self.data > 1:
            return f"DP{self.data} TP{self.tensor}"
        return f"TP{self.tensor} PP{self.pipeline}"
