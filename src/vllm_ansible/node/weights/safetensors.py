"""Check a directory of weights without loading it: every header, size and shard of the index."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from ..failure import Failure

INDEX = "model.safetensors.index.json"
# What the format's own library accepts; a larger length is garbage read as a number.
LARGEST_HEADER = 100_000_000
# Of what is too large to read at once, a page for each tensor and for each so many bytes of it.
SAMPLE, SAMPLE_EACH = 4096, 16 << 20
READERS = 8
OTHER_WEIGHTS = (".bin", ".gguf", ".pt")


class WeightsError(Failure):
    """A model's files cannot be served."""


def read_header(path: str) -> tuple[dict[str, Any], bytes]:
    """Return a file's header, parsed and raw, once the file is exactly as long as it declares."""
    name, size = os.path.basename(path), os.path.getsize(path)
    with open(path, "rb") as weights:
        length = int.from_bytes(weights.read(8), "little")
        if size < 8 or length > min(LARGEST_HEADER, size - 8):
            raise _broken(path, f"a header of {length} bytes", f"a file of {size} bytes")
        raw = weights.read(length)
    try:
        header = json.loads(raw)
        tensors = {key: value for key, value in header.items() if key != "__metadata__"}
        end = max((int(value["data_offsets"][1]) for value in tensors.values()), default=0)
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise _broken(path, "a header in JSON", f"{type(error).__name__} in {name}") from error
    expected = 8 + length + end
    if size != expected:
        state = "cut short" if size < expected else "longer than it declares"
        raise _broken(path, f"{expected} bytes, as its header declares", f"{size} bytes: {state}")
    return tensors, raw


def check(directory: str, report: Optional[Callable[..., None]] = None) -> list[str]:
    """Return the weight files of a model directory once all are whole, or name what is wrong."""
    if not os.path.isfile(os.path.join(directory, "config.json")):
        raise WeightsError(
            "the model directory has no config.json",
            expected="a directory as transformers saves it",
            found="no such directory" if not os.path.isdir(directory) else "no config.json in it",
            where=directory,
            fix="name a directory that holds config.json, tokenizer and weights, on every host",
        )
    indexed = read_index(directory)
    present = sorted(name for name in os.listdir(directory) if name.endswith(".safetensors"))
    shards = sorted(set(indexed.values())) if indexed else present
    missing = [name for name in shards if name not in present]
    if missing:
        raise WeightsError(
            f"{len(missing)} of {len(shards)} shards are missing: {missing[0]}",
            expected=f"{os.path.join(directory, missing[0])}, as {INDEX} says",
            found=f"{len(shards) - len(missing)} of {len(shards)}; without {', '.join(missing)}",
            where=directory,
            fix="copy the missing files there; for a model of the hub, run the stage weights",
        )
    if not shards and not any(name.endswith(OTHER_WEIGHTS) for name in os.listdir(directory)):
        raise WeightsError(
            "the model directory holds no weights",
            expected="at least one *.safetensors",
            found=", ".join(sorted(os.listdir(directory))[:8]) or "an empty directory",
            where=directory,
            fix="copy the weights there",
        )
    for number, name in enumerate(shards):
        if report:
            report(number, len(shards), "shards", "checking")
        tensors, _ = read_header(os.path.join(directory, name))
        absent = [key for key, shard in indexed.items() if shard == name and key not in tensors]
        if absent:
            raise _broken(
                os.path.join(directory, name),
                f"the tensor {absent[0]}, as {INDEX} says",
                "no such tensor",
            )
    return shards


def read_index(directory: str) -> dict[str, str]:
    """Return the shard of each tensor, nothing where a model has a single file."""
    path = os.path.join(directory, INDEX)
    try:
        with open(path, encoding="utf-8") as index:
            return dict(json.load(index)["weight_map"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(path, "an index in JSON", type(error).__name__) from error


def file_digest(path: str, largest: int) -> str:
    """Return a digest of a file: of all of it up to a size, then of blocks of each tensor."""
    digest = hashlib.sha256()
    if is_sampled(path, largest):
        tensors, raw = read_header(path)
        digest.update(raw + str(os.path.getsize(path)).encode())
        for block in _blocks(path, sorted(_places(tensors, 8 + len(raw)))):
            digest.update(block)
        return digest.hexdigest()
    with open(path, "rb") as content:
        for block in iter(lambda: content.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def is_sampled(path: str, largest: int) -> bool:
    """Tell whether a file's digest is of blocks alone."""
    return path.endswith(".safetensors") and os.path.getsize(path) > largest


def _places(tensors: dict[str, Any], start: int) -> Iterator[tuple[int, int]]:
    """Yield where blocks of each tensor lie: one in each part of it, where its name says."""
    for name, tensor in tensors.items():
        low, high = (start + int(offset) for offset in tensor["data_offsets"])
        mark = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        for part in range(low, high, SAMPLE_EACH):
            length = min(SAMPLE_EACH, high - part)
            yield part + mark % max(1, length - SAMPLE + 1), min(SAMPLE, length)


def _blocks(path: str, places: list[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the blocks in order; a disk or a server is asked for several at once."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with ThreadPoolExecutor(READERS) as readers:
            yield from readers.map(lambda place: os.pread(handle, place[1], place[0]), places)
    finally:
        os.close(handle)


def _broken(path: str, expected: str, found: str) -> WeightsError:
    return WeightsError(
        f"{os.path.basename(path)} is damaged: {found}",
        expected=expected,
        found=found,
        where=path,
        fix="remove the file and fetch it again; for a model of the hub, run the stage weights",
    )
