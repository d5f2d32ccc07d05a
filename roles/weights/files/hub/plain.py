"""One file of the hub over plain HTTPS.

huggingface_hub 2 begins a file anew in every process. So the bytes are streamed here, into a part
that the next run goes on with; the library signs in and explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from growing import Answer
from huggingface_hub import get_session
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status


@contextmanager
def answer(url: str, have: int, stall: float) -> Iterator[Answer]:
    """Ask for a file from an offset on; stall: seconds without a byte that are an error."""
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with get_session().stream("GET", url, headers=headers, timeout=stall) as response:
        hf_raise_for_status(response)
        yield have if response.status_code == 206 else 0, response.iter_raw()
