"""How long an engine will load, from what its hosts found; and what would make it shorter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_ansible.node.weights.loading.way import (
    AHEAD,
    AHEAD_ON,
    FITS,
    MAPPED,
    NOTHING,
    WHOLE,
    fits,
    given,
)
from vllm_ansible.plan.estimate.memory.release import release
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.plan.servers import entry_of
from vllm_ansible.problem import PlanError
from vllm_ansible.terminal import amount, duration

Planned = Mapping[str, Any]
Look = Mapping[str, Any]

# Below these nobody waits, so nothing is said.
WORTH_SECONDS, WORTH_BYTES = 10, 1 << 30
# From here on it is worth to change something.
LONG_SECONDS = 60
# vLLM's releases whose way of reading was read in their source.
READ_IN = (0, 32, 0)
# What the default of 128 KiB keeps a mapped file on NFS from is asked for in larger pieces.
READ_AHEAD_KIB = 1024


@dataclass(frozen=True)
class HostLoad:
    """What one host reads when an engine starts, at most; `seconds` is None where nobody knows."""

    host: str
    kind: str
    way: str
    bytes: int
    cached: float
    bytes_per_second: int
    seconds: float | None
    why: str = ""


def to_load(
    engines: Iterable[Planned],
    host: str,
    models: Mapping[str, Mapping[str, Any]],
    actions: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the engines that are about to start on a host, as it looks at their weights.

    actions: what was decided of each engine. One whose model is not there yet is left out.
    """
    return [
        {
            "name": engine["name"],
            "path": models[entry_of(engine)]["path"],
            "fingerprint": str(models[entry_of(engine)].get("fingerprint", "")),
            "arguments": list(engine["arguments"]),
            "ranks": sum(1 for rank in engine["ranks"] if rank["host"] == host),
        }
        for engine in engines
        if host in engine["hosts"]
        and entry_of(engine) in models
        and actions.get(engine["name"], {}).get("action", "none") not in ("none", "remove")
    ]


def host_bytes(engine: Planned, host: str, contents: Mapping[str, Any], way: str) -> int:
    """Return the bytes that the ranks of a host read of a model, at most.

    Ranks of a host share its memory, so each byte is read once. A rank maps every file and takes
    the tensors of its stage; of those that are split by columns it needs a part, but of pages
    nearly all, so the whole of its stage counts. Reading ahead, it reads a share of the files too.
    """
    total = int(contents["bytes"])
    if way == NOTHING:
        return 0
    if way == WHOLE:
        return total
    held = min(total, _of_stages(engine, host, contents))
    if way != AHEAD:
        return held
    ranks = engine["ranks"]
    share = sum(1 for rank in ranks if rank["host"] == host) / max(len(ranks), 1)
    return round(held + share * (total - held))


def _of_stages(engine: Planned, host: str, contents: Mapping[str, Any]) -> int:
    """Return the bytes of the pipeline stages that have a rank on a host."""
    layout = engine.get("layout") or {}
    tensor, pipeline = int(layout.get("tensor", 1)), int(layout.get("pipeline", 1))
    layers = {int(number): int(size) for number, size in contents["layers"].items()}
    if pipeline == 1 or not layers or not contents["count"]:
        return int(contents["bytes"])
    partition = str((engine.get("environment") or {}).get("VLLM_PP_LAYER_PARTITION") or "")
    sizes = (
        tuple(map(int, partition.split(","))) if re.fullmatch(r"\d+(,\d+)*", partition) else None
    )
    try:
        dealt = stages(int(contents["count"]), Split(tensor, pipeline, layer_partition=sizes))
    except PlanError:
        return int(contents["bytes"])
    here = {
        rank["rank"] % (tensor * pipeline) // tensor
        for rank in engine["ranks"]
        if rank["host"] == host
    }
    sums = sum(layers.get(layer, 0) for stage in here for layer in dealt[stage])
    # Embedding and head are at the ends; layers beyond the last are for guessing tokens ahead.
    ends = int(contents["others"]) if here & {0, pipeline - 1} else 0
    beyond = sum(size for layer, size in layers.items() if layer >= int(contents["count"]))
    return sums + ends + (beyond if pipeline - 1 in here else 0)


def host_load(engine: Planned, host: str, look: Look) -> HostLoad:
    """Return what a host reads when an engine starts, and for how long."""
    if "storage" not in look:
        why = str(look.get("why") or "it was not checked")
        return HostLoad(host, "", "", 0, 0.0, 0, None, why)
    way, cached = str(look["way"]), float(look.get("cached") or 0.0)
    size = host_bytes(engine, host, look["contents"], way)
    left = round(size * (1 - cached))
    rate = int((look.get("rate") or {}).get("bytes_per_second") or 0)
    seconds = 0.0 if left == 0 else left / rate if rate else None
    if way not in (MAPPED, AHEAD, WHOLE, NOTHING):
        seconds = None
    return HostLoad(
        host,
        str(look["storage"]["kind"]),
        way,
        left,
        cached,
        rate,
        None if seconds is None else round(seconds, 1),
        str(look.get("why") or "") if seconds is None else "",
    )


def forecast(engine: Planned, looks: Mapping[str, Look], version: str = "") -> dict[str, Any]:
    """Return what is kept of an engine that is about to load, with the `line` to print, if any.

    looks: what each of its hosts found. seconds: of the slowest host, None where one is not known.
    """
    loads = [host_load(engine, host, looks.get(host) or {}) for host in engine["hosts"]]
    unknown = [one for one in loads if one.seconds is None]
    slowest = max(loads, key=lambda one: (one.seconds is None, one.seconds or 0.0))
    seconds = None if unknown else slowest.seconds
    advice = _advice(engine, looks, version)
    if seconds is not None and seconds < LONG_SECONDS:
        advice = []
    return {
        "seconds": seconds,
        "hosts": {one.host: asdict(one) for one in loads},
        "advice": advice,
        "line": _line(str(engine["name"]), loads, slowest, advice),
    }


def elsewhere(forecasts: Mapping[str, Mapping[str, Any]], engine: str, host: str) -> float:
    """Return how long an engine's hosts other than this one are expected to load, at most."""
    hosts = (forecasts.get(engine) or {}).get("hosts") or {}
    return max(
        (float(one["seconds"] or 0) for name, one in hosts.items() if name != host), default=0.0
    )


def _line(name: str, loads: Sequence[HostLoad], slowest: HostLoad, advice: Sequence[str]) -> str:
    """Return one line for people; empty where nobody has to wait for it."""
    most = f"at most {amount(slowest.bytes, 'bytes')} from {slowest.kind}"
    told = f"; {'; '.join(advice)}" if advice else ""
    if slowest.seconds is None:
        if slowest.kind and slowest.bytes < WORTH_BYTES:
            return ""
        what = f"reads {most}" if slowest.kind else "reads its weights"
        why = slowest.why or "its rate was not measured"
        return f"{name}: {slowest.host} {what}, for how long is not known: {why}{told}"
    if slowest.seconds < WORTH_SECONDS:
        return ""
    where = (
        slowest.host if len(loads) == 1 else f"the slowest of {len(loads)} hosts, {slowest.host},"
    )
    rate = amount(slowest.bytes_per_second, "bytes")
    return (
        f"{name}: {where} reads {most} at {rate}/s as measured, "
        f"so loading takes about {duration(slowest.seconds)}{told}"
    )


def _advice(engine: Planned, looks: Mapping[str, Look], version: str) -> list[str]:
    """Return what would make loading shorter, once for all hosts on which it is so."""
    found: dict[str, None] = {}
    for look in looks.values():
        if "storage" in look:
            found.update(dict.fromkeys(host_advice(engine["arguments"], look, version)))
    return list(found)


def host_advice(words: Sequence[str], look: Look, version: str = "") -> list[str]:
    """Return what would make loading from a host's storage shorter; nothing of its own disks.

    On a local disk no way of loading was faster than vLLM's own (docs/weights.md).
    """
    storage, size = look["storage"], int(look["contents"]["bytes"])
    kind, available = str(storage["kind"]), int(storage["memory_available"])
    if not storage["network"] or look["way"] == NOTHING:
        return []
    told = []
    chosen = given(words, "load_format") or given(words, "safetensors_load_strategy")
    known = _was_read(version)
    if look["way"] == MAPPED and kind not in AHEAD_ON and fits(size, available):
        if not chosen and known:
            told.append(
                f"vLLM reads ahead by itself on NFS and Lustre and not on {kind}: "
                "vllm_args: {safetensors_load_strategy: prefetch}"
            )
    elif look["way"] == MAPPED and not fits(size, available):
        told.append(
            f"{amount(size, 'bytes')} are more than {FITS:.0%} of the "
            f"{amount(available, 'bytes')} of free memory, so vLLM does not read ahead"
        )
    if int(storage["local_free"]) > size:
        room = f"{storage['local_kind']}, {amount(int(storage['local_free']), 'bytes')} free"
        told.append(f"the local disk ({room}) has room for a copy: docs/weights.md")
    ahead = storage.get("read_ahead_kib")
    if kind in ("nfs", "nfs4") and look["way"] == MAPPED and ahead and ahead < READ_AHEAD_KIB:
        told.append(f"the kernel reads {ahead} KiB ahead at {storage['point']}: docs/weights.md")
    if kind == "lustre":
        told.append(f"see how many targets hold a file: lfs getstripe -c {storage['place']}")
    return told


def _was_read(version: str) -> bool:
    """Tell whether a release reads as it is said here; an unknown one is taken for the newest."""
    try:
        return release(version or None) >= READ_IN
    except PlanError:
        return True
