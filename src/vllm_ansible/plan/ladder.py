"""The ladder of an engine: what its restarts may change, what that costs, and what was kept of it.

A rung is tried only where something points to it: what was found, or a known line of its logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from vllm_ansible.node.process import process
from vllm_ansible.node.watchdog import ladder
from vllm_ansible.node.watchdog.ladder import AGAIN, Point, Rung
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.process_spec import SERVE, ProcessSpec

Engine = Mapping[str, Any]
GIB = 1 << 30
# What the watchdog finds of an engine that computes nothing, and of one that never answers.
SILENT = ("hung", "unanswered")
MEMORY = ("accelerator-memory", "zombie-gpu-memory", "cublas-no-memory", "memory-profiling")
CARDS = ("ib-device-closed", "ib-device", "roce-gid-or-fabric", "memory-not-registered")
COMPILERS = ("no-compiler", "nvcc-missing", "ninja-missing")
KERNELS = ("illegal-access", "triton-shared-memory")
UTILIZATION, LESS = 0.9, 0.05
EAGER_WORDS = "--enforce-eager"


def rungs(engine: Engine, known: Mapping[str, Point]) -> list[dict[str, Any]]:
    """Return the rungs of one engine of a plan, in their order, as its head reads them.

    known: lines of the known failures, by their names. What the engine's own arguments say already
    is left out.
    """

    def points(*names: str) -> tuple[Point, ...]:
        return tuple(known[name] for name in names)

    words = [str(word) for word in engine.get("arguments", ())]
    spread = len(engine["hosts"]) > 1
    found = [
        _less_memory(words, engine.get("estimate") or {}, points(*MEMORY)),
        Rung(
            "nvls",
            "NCCL_NVLS_ENABLE=0",
            "all-reduces without the NVSwitch's own sums",
            environment={"NCCL_NVLS_ENABLE": "0"},
            points=points("nvls", "nvls-illegal-state"),
        ),
        Rung(
            "peer-access",
            "NCCL_P2P_DISABLE=1 --disable-custom-all-reduce",
            "collectives within a host pass through its memory",
            ("--disable-custom-all-reduce",),
            {"NCCL_P2P_DISABLE": "1"},
            points=points("peer-access"),
        ),
        Rung(
            "all-reduce",
            "--disable-custom-all-reduce",
            "small all-reduces take as long as NCCL's",
            ("--disable-custom-all-reduce",),
            points=points("custom-all-reduce-expandable"),
        ),
        Rung(
            "sampler",
            "VLLM_USE_FLASHINFER_SAMPLER=0",
            "sampling by PyTorch, some milliseconds of a large batch",
            environment={"VLLM_USE_FLASHINFER_SAMPLER": "0"},
            points=points("flashinfer-cannot-compile"),
        ),
        _compiled(
            "graphs",
            words,
            {"cudagraph_mode": "NONE"},
            f"at most that of eager: {_eager(engine)}",
            SILENT,
            points("graph-capture"),
        ),
        _compiled(
            "compilation",
            words,
            {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
            "kernels that are not fused, and prompts without graphs",
            (),
            points(*COMPILERS),
        ),
        Rung(
            "attention",
            f"--attention-backend {_backend(words)}",
            "not known: the backend that vLLM chooses is the faster one in most cases",
            ("--attention-backend", _backend(words)),
            points=points("attention-backend", *KERNELS),
        ),
        Rung(
            "sockets" if spread else "",
            "NCCL_IB_DISABLE=1",
            "data between hosts passes through TCP, which is several times slower than RDMA",
            environment={"NCCL_IB_DISABLE": "1"},
            points=points(*CARDS),
        ),
        Rung(
            "" if EAGER_WORDS in words else "eager",
            EAGER_WORDS,
            _eager(engine),
            (EAGER_WORDS,),
            kinds=SILENT,
            points=points("graph-capture", *KERNELS, *COMPILERS),
        ),
    ]
    return [asdict(one) for one in found if one.name and not _has(words, engine, one)]


def _has(words: Sequence[str], engine: Engine, rung: Rung) -> bool:
    """Tell whether an engine starts so already."""
    own = engine.get("environment") or {}
    set_already = all(own.get(name) == value for name, value in rung.environment.items())
    flags = list(rung.words)
    place = [list(words[at : at + len(flags)]) for at in range(len(words))]
    return set_already and (not flags or flags in place)


def _value(words: Sequence[str], *flags: str) -> str:
    """Return what the last of these flags is given, empty where none is."""
    given = [after for word, after in pairwise(words) if word in flags]
    return given[-1] if given else ""


def _less_memory(
    words: Sequence[str], estimate: Mapping[str, Any], points: tuple[Point, ...]
) -> Rung:
    """Return the rung that leaves more of each device's memory unused."""
    try:
        share = float(_value(words, "--gpu-memory-utilization") or UTILIZATION) - LESS
    except ValueError:
        share = 0.0
    given = {"--kv-cache-memory-bytes", "--num-gpu-blocks-override"} & set(words)
    stages = estimate.get("stages") or ()
    taken = [f"{LESS * one['memory_bytes'] / max(1, one['kv_bytes'][1]):.0%}" for one in stages[:1]]
    return Rung(
        "memory" if share >= UTILIZATION / 2 and not given else "",
        f"--gpu-memory-utilization {share:.2f}",
        f"{taken[0] if taken else 'a part'} of the KV cache",
        ("--gpu-memory-utilization", f"{share:.2f}"),
        points=points,
    )


def _compiled(
    name: str,
    words: Sequence[str],
    wanted: Mapping[str, Any],
    cost: str,
    kinds: tuple[str, ...],
    points: tuple[Point, ...],
) -> Rung:
    """Return a rung of another compilation, which keeps what the engine's own says besides."""
    try:
        own = json.loads(_value(words, "--compilation-config", "-cc") or "{}")
    except ValueError:
        own = {}
    merged = {**(own if isinstance(own, dict) else {}), **wanted}
    flag = "--compilation-config"
    text = json.dumps(merged, sort_keys=True)
    said = f"{flag} '{json.dumps(dict(wanted), sort_keys=True)}'"
    eager = EAGER_WORDS in words or merged == own
    return Rung("" if eager else name, said, cost, (flag, text), kinds=kinds, points=points)


def _backend(words: Sequence[str]) -> str:
    """Return an attention backend that is not the engine's own."""
    return "FLASH_ATTN" if "TRITON" in _value(words, "--attention-backend") else "TRITON_ATTN"


def _eager(engine: Engine) -> str:
    """Return what it costs to compute without graphs, by the planner where it knows."""
    estimate = engine.get("estimate") or {}
    rates, eager = estimate.get("output_tokens_per_second"), estimate.get("eager_tokens_per_second")
    if not rates or not eager or not rates[1]:
        return "not known: a factor of 2 to 4 at few requests, less at many"
    return (
        f"{eager[1]:,.0f} in place of {rates[1]:,.0f} tokens/s at {estimate['concurrency']:.0f} "
        f"requests are expected ({eager[1] / rates[1]:.0%})"
    )


def hardware(engine: Engine, hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what an engine computes on, as its rung is kept for it. hosts: site_host by name."""
    found = [
        f"{host.get('accelerator_name') or host.get('accelerator', '')} x"
        f"{sum(rank['host'] == name for rank in engine.get('ranks') or ())}"
        for name, host in ((name, hosts.get(name) or {}) for name in engine["hosts"])
    ]
    return ", ".join(found)


def begun(
    wanted: Mapping[str, Sequence[ProcessSpec]],
    looks: Mapping[str, Mapping[str, Any]],
    engines: Iterable[PlannedEngine],
    hosts: Mapping[str, Mapping[str, Any]],
) -> dict[str, tuple[ProcessSpec, ...]]:
    """Return the processes of every host as they are to start: on the rung that has helped.

    looks: of M(processes_info), with its `ladder`. A rung that has not helped counts only for
    processes that run on it. What is kept for another command, other packages, weights or hardware
    counts for nothing.
    """
    kept = {
        name: one for look in looks.values() for name, one in (look.get("ladder") or {}).items()
    }
    chosen = {
        engine.name: ladder.of_kept(kept[engine.name])
        for engine in engines
        if engine.name in kept and _counts(engine, kept[engine.name], wanted, looks, hosts)
    }
    return {
        host: tuple(
            _on(chosen[one.engine], one) if one.part == SERVE and one.engine in chosen else one
            for one in specs
        )
        for host, specs in wanted.items()
    }


def _counts(
    engine: PlannedEngine,
    kept: Mapping[str, Any],
    wanted: Mapping[str, Sequence[ProcessSpec]],
    looks: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
) -> bool:
    own = [one for specs in wanted.values() for one in specs if one.engine == engine.name]
    serving = [one for one in own if one.part == SERVE]
    specs = {one.name: process.spec(asdict(one)) for one in serving}
    if not ladder.holds(kept, specs, hardware(engine.to_dict(), hosts)):
        return False
    running = [
        (looks.get(one.host, {}).get("processes") or {}).get(one.name, {}).get("running")
        for one in serving
    ]
    return bool(kept["helped"]) or (bool(kept.get("current")) and all(running))


def _on(rung: Rung, one: ProcessSpec) -> ProcessSpec:
    environment = {**one.environment, **dict(rung.environment)}
    return replace(one, argv=(*one.argv, *rung.words), environment=environment)


def rows(look: Mapping[str, Any]) -> list[str]:
    """Return one line for each engine that starts otherwise than planned. look: processes_info."""
    found = []
    for name, kept in sorted((look.get("ladder") or {}).items()):
        if kept["rung"] == AGAIN.name or not kept.get("current"):
            continue
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(kept["at"]))
        state = "helped" if kept["helped"] else "has not helped"
        found.append(
            f"ladder: {name}: starts with {kept['says']} since {at}, for {kept['why']}, which "
            f"{state}; cost: {kept['cost']}; site.yml with -e forget_rungs=true and "
            "-e allow_disruption=true ends it"
        )
    return found
