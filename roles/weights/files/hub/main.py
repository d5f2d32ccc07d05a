"""Ask the model hub what a model consists of, or fetch its files, going on with what is there.

Run by a Python that holds huggingface_hub (1.8 or newer): main.py REQUEST.json. The other files
here must lie beside it. Writes JSON lines: progress, file (one that is whole on disk), failed,
result. huggingface_hub reads the token from the file HF_TOKEN_PATH names, and HF_ENDPOINT,
HF_HUB_OFFLINE and the variables of proxies.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explaining import explain
from fetching import Fetch
from listing import manifest
from messages import say

ACTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "manifest": manifest,
    "fetch": lambda request: Fetch(request).run(),
}


def end_with_input() -> None:
    """End when standard input does."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Do what a request asks; end at once with what went wrong, whatever threads still wait."""
    request = json.loads(Path(sys.argv[1]).read_text())
    if request.get("ends_with_input"):
        # Whoever asked may be killed: nobody else may then find this one at work.
        threading.Thread(target=end_with_input, daemon=True).start()
    try:
        say(result=ACTIONS[request["action"]](request))
    except Exception as error:
        failure = explain(error, request)
        say(failed=str(failure), details=failure.details)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
