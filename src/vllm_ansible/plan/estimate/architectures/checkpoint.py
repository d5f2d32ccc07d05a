"""What the files of a checkpoint say of themselves: headers of safetensors, or their index."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings, brief, parse
from vllm_ansible.problem import PlanError, Problem

INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 256 * 2**20
# No model has as many bytes.
LARGEST_TOTAL = 2**60
WIDTHS = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


@frozen
class Stored:
    """One tensor in a file: its type as safetensors writes it, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return self.elements * WIDTHS.get(self.dtype, 2)


@frozen
class Checkpoint:
    """Names of all tensors; what is known of each (headers), and the sum the index gives."""

    names: frozenset[str]
    tensors: Mapping[str, Stored]
    total: int

    @classmethod
    def of(cls, tensors: Mapping[str, Stored]) -> Checkpoint:
        """Return the checkpoint of these headers."""
        return cls(frozenset(tensors), tensors, sum(one.bytes for one in tensors.values()))


def from_index(index: Settings) -> Checkpoint:
    """Return what `model.safetensors.index.json` says: names and the sum of bytes."""
    names = index.section("weight_map")
    if names is None:
        raise index.problem("this index has no weight_map", "an index of safetensors")
    metadata = index.section("metadata")
    total = metadata.values.get("total_size") if metadata else None
    if total in (None, 0):
        return Checkpoint(frozenset(names.values), {}, 0)
    number = isinstance(total, int | float) and not isinstance(total, bool)
    if not number or not len(names.values) <= total < LARGEST_TOTAL:
        raise index.problem(
            f"the total_size of its {len(names.values)} tensors is {brief(total)}",
            "a number of bytes",
            brief(total),
        )
    return Checkpoint(frozenset(names.values), {}, int(total))


def from_files(paths: Iterable[Path]) -> Checkpoint:
    """Return what the headers of these safetensors files say; no weight is read."""
    tensors: dict[str, Stored] = {}
    for path in paths:
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 0 < length <= LARGEST_HEADER:
                raise _broken(path, f"its header would have {length} bytes")
            text = file.read(length)
        tensors.update(header(text, path))
    return Checkpoint.of(tensors)


def header(text: bytes, path: Path) -> dict[str, Stored]:
    """Return the tensors that one header lists."""
    try:
        values = json.loads(text)
        found = {
            name: Stored(str(entry["dtype"]), tuple(entry["shape"]))
            for name, entry in values.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(path, f"its header cannot be read: {brief(error)}") from error
    for name, one in found.items():
        if not all(isinstance(size, int) and size >= 0 for size in one.shape):
            raise _broken(path, f"its {name} has the shape {brief(one.shape)}")
    return found


def _broken(path: Path, reason: str) -> PlanError:
    return PlanError(
        Problem(
            f"this is no whole safetensors file, {reason}",
            "a safetensors file",
            where=str(path),
            fix="verify the shard and fetch it again",
        )
    )


def in_directory(directory: Path) -> Checkpoint | None:
    """Return what a directory's weights say, None where it holds none.

    The index speaks where a shard it names is not there (yet).
    """
    files = {path.name: path for path in sorted(directory.glob("*.safetensors"))}
    path = directory / INDEX
    if path.is_file():
        index = parse(path.read_bytes(), str(path), largest=LARGEST_HEADER)
        shards = index.section("weight_map")
        if shards is None or any(one not in files for one in map(str, shards.values.values())):
            return from_index(index)
    return from_files(files.values()) if files else None
