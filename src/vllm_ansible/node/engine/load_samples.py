"""What a host shows each second while an engine is loaded, and what that comes to.

Of the engine its own gauges; of its API server and of the load generator how long their main
threads ran and how long they waited for a processor; of their sockets what is not sent or read.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean
from typing import Any, Callable, Optional

from .. import launcher
from ..process.process import ProcessError, read_json
from . import metrics

SECONDS = 1.0
PAGE_SECONDS = 5
FRONT_END, ENGINE, CLIENT = "front_end", "engine", "client"
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "usage": "vllm:kv_cache_usage_perc",
}
CACHE, BLOCKS = "vllm:cache_config_info", ("num_gpu_blocks", "block_size")
ESTABLISHED = "01"
NANO = 1e9
# What a row has of a process that ended while it was looked at.
GONE: tuple[Any, ...] = (None, [])
Marks = dict[tuple[int, int], str]
# Fewer say nothing about shares of time.
LEAST = 3
# Beside this much of the cache in use, a request of a few blocks finds no room.
FULL = 0.9
# What of the engine is found in a row, and how it is called where there is nothing.
KEYS = (
    *("running_most", "running_mean", "waiting_mean", "seats_full_share", "cache_full_share"),
    *("cache_usage_most", "cache_tokens"),
    *("client_busy", "client_cpus", "front_end_busy", "front_end_cpus", "engine_cpus"),
    *("host_busy_share", "host_cpus", "client_host_cpus"),
    *("server_unsent_share", "server_unread_share", "client_unread_share"),
    *("network_bytes_per_second", "network_used_share"),
)


@dataclass(frozen=True)
class Watched:
    """What is sampled: servers by the names of their processes and where their metrics are.

    port is that of the address which the client asks, task the status file of its task, rows the
    file that the samples go to.
    """

    cluster_dir: str
    servers: Sequence[str]
    urls: Sequence[str]
    port: int
    task: str
    rows: str


def follow(watched: Watched, report: Callable[..., None]) -> None:
    """Write a row each second until ended."""
    marks: Marks = {}
    began = time.monotonic()
    with open(watched.rows, "w", encoding="utf-8") as file:
        number = 0
        while True:
            file.write(json.dumps(row(watched, marks)) + "\n")
            file.flush()
            number += 1
            report(done=number, unit="samples")
            time.sleep(max(0.0, began + number * SECONDS - time.monotonic()))


def row(watched: Watched, marks: Marks) -> dict[str, Any]:
    """Return one sample. marks: of which recorded process each process is, as far as known."""
    table = launcher.process_table()
    pids: dict[str, set[int]] = {
        FRONT_END: set(),
        ENGINE: set(),
        CLIENT: _client(watched.task, table),
    }
    wanted = {
        os.path.join(watched.cluster_dir, "processes", f"{one}.json") for one in watched.servers
    }
    for pid, stat in table.items():
        key = (pid, stat.start_time)
        if key not in marks:
            marks[key] = mark(pid)
        if marks[key] in wanted:
            pids[FRONT_END if answers(title(pid)) else ENGINE].add(pid)
    return {
        "at": time.monotonic(),
        "gauges": gauges(metrics.get(f"{url}/metrics", PAGE_SECONDS) for url in watched.urls),
        "threads": {name: {str(pid): thread(pid) for pid in found} for name, found in pids.items()},
        "ticks": {name: {str(pid): ticks(pid) for pid in found} for name, found in pids.items()},
        "host": host_ticks(),
        "sockets": sockets(_text("/proc/net/tcp") + _text("/proc/net/tcp6"), watched.port),
        "network": network(_text("/proc/net/dev")),
    }


def mark(pid: int) -> str:
    """Return the record that a process carries in its environment, empty where it has none."""
    begins = f"{launcher.MARKER}="
    words = _text(f"/proc/{pid}/environ").split("\0")
    return next((one[len(begins) :] for one in words if one.startswith(begins)), "")


def title(pid: int) -> str:
    """Return what a process calls itself."""
    return _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def answers(called: str) -> bool:
    """Tell whether a process of an engine is its API server, by the title that vLLM gives it."""
    return "APIServer" in called or ("VLLM::" not in called and " serve " in f"{called} ")


def gauges(pages: Iterable[str]) -> dict[str, float]:
    """Return what servers say of their requests and caches; nothing unless all of them answer."""
    known = list(pages)
    if not known or not all(GAUGES["running"] in page for page in known):
        return {}
    found = {name: sum(metrics.total(page, one) for page in known) for name, one in GAUGES.items()}
    found["usage"] = max(metrics.total(page, GAUGES["usage"]) for page in known)
    found["cache_tokens"] = sum(map(_cache_tokens, known))
    return found


def _cache_tokens(page: str) -> float:
    found = [re.search(rf'^{CACHE}\{{.*\b{name}="(\d+)"', page, re.MULTILINE) for name in BLOCKS]
    blocks, size = (float(one[1]) if one else 0.0 for one in found)
    return blocks * size


def _client(task: str, table: Mapping[int, launcher.Stat]) -> set[int]:
    """Return the processes of the load generator: of its task, and all below."""
    with suppress(ProcessError):
        status = read_json(task) or {}
        process = status.get("process") or {}
        if launcher.alive(process.get("pid"), process.get("start_time")):
            pid = int(process["pid"])
            return {pid} | launcher.descendants({pid}, dict(table))
    return set()


def thread(pid: int) -> list[int]:
    """Return for how many nanoseconds a main thread ran, and waited for a processor to run on."""
    words = _text(f"/proc/{pid}/task/{pid}/schedstat").split()
    return [int(words[0]), int(words[1])] if len(words) >= 2 else []


def ticks(pid: int) -> Optional[int]:
    """Return the processor time of a process in units of the kernel's clock, None of none."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else None


def host_ticks() -> list[int]:
    """Return for how long the host's processors were busy, and how long there were any."""
    words = [int(one) for one in _text("/proc/stat").split("\n", 1)[0].split()[1:9]]
    if len(words) < 8:
        return []
    idle = words[3] + words[4]
    return [sum(words) - idle, sum(words)]


def sockets(table: str, port: int) -> dict[str, int]:
    """Return how many connections of a port there are, and at how many of them bytes are held up.

    table: what /proc/net/tcp says. Both ends are in it where the client is on this host.
    """
    found = dict.fromkeys(
        ("server", "server_unsent", "server_unread", "client", "client_unread"), 0
    )
    for line in table.splitlines():
        words = line.split()
        if len(words) < 5 or words[3] != ESTABLISHED:
            continue
        unsent, unread = (int(one, 16) for one in words[4].split(":"))
        if _port(words[1]) == port:
            found["server"] += 1
            found["server_unsent"] += unsent > 0
            found["server_unread"] += unread > 0
        elif _port(words[2]) == port:
            found["client"] += 1
            found["client_unread"] += unread > 0
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def network(table: str) -> dict[str, list[int]]:
    """Return the bytes that each interface received and sent, without the loopback."""
    found = {}
    for line in table.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) >= 9 and name.strip() != "lo":
            found[name.strip()] = [int(words[0]), int(words[8])]
    return found


def speed(interface: str) -> float:
    """Return how many bytes a second the driver of an interface names, 0 where it names none."""
    with suppress(ValueError):
        return max(0, int(_text(f"/sys/class/net/{interface}/speed"))) * 1e6 / 8
    return 0.0


def read(path: str, since: Optional[float], until: Optional[float]) -> list[dict[str, Any]]:
    """Return the samples between two moments of this host's monotonic clock."""
    found = []
    for line in _text(path).splitlines():
        with suppress(ValueError):
            one = json.loads(line)
            if (since is None or one["at"] >= since) and (until is None or one["at"] <= until):
                found.append(one)
    return found


def loaded(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the samples from the first to the last at which a server had requests.

    All of them where the servers' gauges are not known.
    """
    asked = [
        number
        for number, one in enumerate(rows)
        if one["gauges"] and one["gauges"]["running"] + one["gauges"]["waiting"] > 0
    ]
    return rows[asked[0] : asked[-1] + 1] if asked else rows


def of_client(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what samples of another host than the engine's say of the client."""
    told = {name: found[name] for name in KEYS if name.startswith("client_")}
    return {**told, "client_host_cpus": found["host_cpus"]}


def summary(
    rows: Sequence[Mapping[str, Any]], speeds: Callable[[str], float] = speed
) -> dict[str, Any]:
    """Return what samples come to; None for what they do not show."""
    found: dict[str, Any] = {"samples": len(rows), **dict.fromkeys(KEYS)}
    if len(rows) < LEAST:
        return found
    seconds = rows[-1]["at"] - rows[0]["at"]
    found.update(_of_requests([one["gauges"] for one in rows if one["gauges"]]))
    tick = os.sysconf("SC_CLK_TCK")
    for name in (FRONT_END, CLIENT):
        found[f"{name}_busy"] = _busiest(rows, name, seconds)
    for name in (FRONT_END, CLIENT, ENGINE):
        found[f"{name}_cpus"] = _cpus(rows, name, seconds * tick)
    busy = [one["host"] for one in rows if one["host"]]
    if busy and busy[-1][1] > busy[0][1]:
        share = (busy[-1][0] - busy[0][0]) / (busy[-1][1] - busy[0][1])
        found["host_busy_share"] = round(share, 3)
        found["host_cpus"] = os.cpu_count()
    for side, what in (("server", "unsent"), ("server", "unread"), ("client", "unread")):
        shares = [
            one["sockets"][f"{side}_{what}"] / one["sockets"][side]
            for one in rows
            if one["sockets"][side]
        ]
        found[f"{side}_{what}_share"] = round(mean(shares), 3) if shares else None
    found.update(_of_network(rows[0]["network"], rows[-1]["network"], seconds, speeds))
    return found


def _of_requests(known: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return how requests waited: while all seats were taken, or the cache was full."""
    if not known:
        return {}
    most = max(one["running"] for one in known)
    waiting = [one for one in known if one["waiting"] > 0]
    return {
        "running_most": most,
        "running_mean": round(mean(one["running"] for one in known), 2),
        "waiting_mean": round(mean(one["waiting"] for one in known), 2),
        # A request ends and the next is admitted between two steps: one seat may look free.
        "seats_full_share": round(
            sum(1 for one in waiting if one["running"] >= most - most // 8) / len(known), 3
        ),
        "cache_full_share": round(
            sum(1 for one in waiting if one["usage"] >= FULL) / len(known), 3
        ),
        "cache_usage_most": round(max(one["usage"] for one in known), 3),
        "cache_tokens": known[-1]["cache_tokens"] or None,
    }


def _busiest(rows: Sequence[Mapping[str, Any]], name: str, seconds: float) -> Optional[float]:
    """Return the share of time in which the busiest main thread ran or waited for a processor."""
    grown = _grown(rows, "threads", name)
    shares = [(after[0] - before[0] + after[1] - before[1]) / NANO for before, after in grown]
    return round(min(1.0, max(shares) / seconds), 3) if shares else None


def _cpus(rows: Sequence[Mapping[str, Any]], name: str, ticks_each: float) -> Optional[float]:
    grown = _grown(rows, "ticks", name)
    return round(sum(after - before for before, after in grown) / ticks_each, 3) if grown else None


def _grown(rows: Sequence[Mapping[str, Any]], kind: str, name: str) -> list[tuple[Any, Any]]:
    """Return what each process had at the first and at the last sample that both show it."""
    first, last = rows[0][kind].get(name, {}), rows[-1][kind].get(name, {})
    there = [pid for pid in first if first[pid] not in GONE and last.get(pid) not in GONE]
    return [(first[pid], last[pid]) for pid in there]


def _of_network(
    first: Mapping[str, Sequence[int]],
    last: Mapping[str, Sequence[int]],
    seconds: float,
    speeds: Callable[[str], float],
) -> dict[str, Any]:
    """Return the rate of the busiest interface, and the share of what its driver names."""
    rates = {
        name: max(last[name][way] - first[name][way] for way in (0, 1)) / seconds
        for name in first
        if name in last
    }
    if not rates:
        return {}
    busiest = max(rates, key=lambda name: rates[name])
    capacity = speeds(busiest)
    return {
        "network_bytes_per_second": round(rates[busiest]),
        "network_used_share": round(rates[busiest] / capacity, 4) if capacity else None,
    }


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""
