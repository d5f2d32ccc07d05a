"""One file over plain HTTPS.

huggingface_hub 2 begins a file anew in every process. So the bytes are streamed here, into a part
that the next run goes on with; the library signs in and explains.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from answers import ShortAnswer
from folder import size_of
from huggingface_hub import get_session
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status
from words import Failure, route

# Written in steps of a piece: what is held back here, no peer gets either.
BLOCK = 2**18


def other_size(name: str, wanted: int, found: int) -> Failure:
    """Return what to say of a file that is longer or shorter than it should be, in bytes."""
    return Failure(
        f"{name} came back with another size",
        expected=f"{wanted} bytes, as the hub says",
        found=f"{found} bytes",
        where=route(),
        fix="run the stage weights again; if it stays so, check the proxy or mirror",
    )


def stream(
    name: str, size: int, url: str, part: Path, stall: float, stopped: Callable[[], bool]
) -> None:
    """Append to a part what is missing of a file.

    size: bytes of the whole file; stall: seconds without a byte that are an error. Raises
    ShortAnswer where the answer ends early, Failure where there is more than the file.
    """
    have = size_of(part)
    if have < size or not part.exists():
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        # No byte for so long is an error, and the next attempt goes on from here.
        client = get_session()
        with client.stream("GET", url, headers=headers, timeout=stall) as response:
            hf_raise_for_status(response)
            with open(part, "ab", buffering=BLOCK) as file:
                if response.status_code != 206:
                    file.truncate(0)  # the answer is the whole file
                for data in response.iter_raw():
                    file.write(data)
                    if stopped():
                        return
    if size_of(part) < size:
        raise ShortAnswer(name)
    if size_of(part) > size:
        found = size_of(part)
        part.unlink()
        raise other_size(name, size, found)
