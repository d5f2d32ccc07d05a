"""Ask a source what a model consists of, or fetch its files, going on with what is there.

Run by a Python that holds huggingface_hub (1.8 or newer) and boto3: main.py REQUEST.json. The other
files here must lie beside it. Writes JSON lines: progress, file (one that is whole on disk),
failed, result. huggingface_hub reads the token from the file HF_TOKEN_PATH names, and HF_ENDPOINT,
HF_HUB_OFFLINE and the variables of proxies; boto3, for models of object storage, what it always
reads, such as AWS_SHARED_CREDENTIALS_FILE and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fetching import Fetch
from messages import say


def end_with_input() -> None:
    """End when standard input does."""
    sys.stdin.buffer.read()
    os._exit(1)


def source_of(model: str) -> Any:
    """Return the module of a model's source; only that one's client is loaded."""
    return importlib.import_module("object_storage" if model.startswith("s3://") else "hub")


def done(source: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request asks."""
    if request["action"] == "fetch":
        return Fetch(request, source.Files).run()
    return dict(source.manifest(request))


def main() -> None:
    """Do what a request asks; end at once with what went wrong, whatever threads still wait."""
    request = json.loads(Path(sys.argv[1]).read_text())
    if request.get("ends_with_input"):
        # Whoever asked may be killed: nobody else may then find this one at work.
        threading.Thread(target=end_with_input, daemon=True).start()
    source = source_of(request["model"])
    try:
        say(result=done(source, request))
    except Exception as error:
        failure = source.explain(error, request)
        say(failed=str(failure), details=failure.details)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
