"""What the program tells whoever started it."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(**message: Any) -> None:
    """Write one message, whole, from whatever thread."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
