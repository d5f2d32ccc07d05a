"""How looks run the tools of a host: whoever looks brings the way to find and run them."""

from __future__ import annotations

import json
from typing import Any, Callable, NamedTuple, Optional


class Tools(NamedTuple):
    """find returns the path of a tool or None; run returns exit status, output and errors."""

    find: Callable[[str], Optional[str]]
    run: Callable[[list[str]], tuple[int, str, str]]

    def ask(self, name: str, *arguments: str) -> Optional[str]:
        """Return what a tool prints, or None where it is not there or fails."""
        path = self.find(name)
        if path is None:
            return None
        status, said, _ = self.run([path, *arguments])
        return said if status == 0 else None

    def ask_json(self, name: str, *arguments: str) -> Any:
        """Return what a tool prints as JSON, or None where it does not."""
        try:
            return json.loads(self.ask(name, *arguments) or "")
        except ValueError:
            return None
