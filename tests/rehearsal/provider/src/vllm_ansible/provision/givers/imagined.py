"""A cloud that nobody runs."""

from __future__ import annotations

from ..giver import Giver

GIVER = Giver(name="imagined", gives="machines that are imagined", module="imagined_provider")
