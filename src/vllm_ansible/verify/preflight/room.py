"""Limits and memory that the engine's processes will have."""

from __future__ import annotations

from typing import Any

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.processes import LIMITS
from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row, gib

MEMLOCK = Check("memlock", "lockable memory", "a fabric registers the memory it reads and writes")
NOFILE = Check("nofile", "open files", "Ray opens one for each worker, object and connection")
SHM = Check("shm", "shared memory", "NCCL, Ray and vLLM's queues between ranks live in it")
HUGE_PAGES = Check("hugepages", "huge pages", "libfabric takes its EFA buffers from them")
HOST_MEMORY = Check(
    "host_memory", "memory that other processes hold", "the engine's weights pass through it"
)
CHECKS = (MEMLOCK, NOFILE, SHM, HUGE_PAGES, HOST_MEMORY)
GIB = 1 << 30
MEMLOCK_BYTES = 16 * GIB
# ray/_private/worker.py (2.60): it warns below the first and then recommends the second.
RAY_LEAST_FILES, RAY_ENOUGH_FILES = 4096, 8192
DEVICE_SHM_BYTES = 10 * GIB
# Ray's object store takes 30 % of the available memory, up to 10^10 bytes where /dev/shm is no
# larger; what does not fit goes to /tmp (ray/_private/utils.py and services.py, 2.60).
RAY_SHARE, RAY_MOST_BYTES = 0.3, 10**10
# vLLM's queue between ranks: 10 chunks of 24 MiB (device_communicators/shm_broadcast.py, 0.32).
QUEUE_BYTES = 10 * 24 * (1 << 20)
# 5128 pages of 2 MiB are what AWS's EFA installer reserves.
EFA_HUGE_PAGES, EFA_PAGE_KIB = 5128, "2048"


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    found = []
    for host in cluster.hosts:
        look = cluster.looks[host]
        found += [_memlock(cluster, host, look), _nofile(cluster, host, look)]
        found += [_shm(cluster, host, look), _huge_pages(host, look), _host_memory(host, look)]
    return found


def _raise(cluster: Cluster, host: str, name: str) -> str:
    """Return how a limit of the engine's processes is raised."""
    if cluster.limits:
        return cluster.limits
    if cluster.hosts[host]["supervisor"] == "systemd":
        value = LIMITS[name]
        return (
            f"systemctl show --property=Limit{name.upper()} shows the manager's; raise it in "
            f"/etc/systemd/system/vllm-.service.d/zz-limits.conf: [Service] "
            f"Limit{name.upper()}={value}; systemctl daemon-reload; in a container start it with "
            f"--ulimit {name}=-1:-1 --cap-add SYS_RESOURCE"
        )
    value = "unlimited" if LIMITS[name] == "infinity" else LIMITS[name]
    running = "supervisord, process" in str(cluster.looks[host]["limits"].get("of", ""))
    # What runs keeps the limits that it was started with, whatever later logins get.
    ended = ", playbooks/teardown.yml ends the supervisord that has the old ones" if running else ""
    return (
        f"printf '%s - {name} {value}\\n' '*' root > /etc/security/limits.d/vllm.conf and log in "
        f"again{ended}; in a container start it with --ulimit {name}=-1:-1"
    )


def _unmeasured(check: Check, host: str, limits: Any, wanted: str) -> Row | None:
    if "error" not in limits:
        return None
    fix = "journalctl -b -p err; a supervisor that starts nothing starts no engine either"
    return check.row(FAIL, host, wanted, str(limits["error"]), fix)


def _memlock(cluster: Cluster, host: str, look: Any) -> Row:
    accelerated = has_devices(cluster.kind(host))
    if not look["rdma"] and (not accelerated or not cluster.several):
        reason = "no RDMA card" + (" and one host" if accelerated else "")
        return MEMLOCK.skipped(host, f"{reason}: nothing registers memory")
    limits, wanted = look["limits"], f"{gib(MEMLOCK_BYTES)} or more"
    if row := _unmeasured(MEMLOCK, host, limits, wanted):
        return row
    value = limits["memlock"]
    verdict = PASS if value is None or value >= MEMLOCK_BYTES else FAIL
    told = "unlimited" if value is None else f"{value / (1 << 20):g} MiB"
    fix = _raise(cluster, host, "memlock")
    return MEMLOCK.judged(verdict, host, wanted, f"{told}, in {limits['of']}", fix)


def _nofile(cluster: Cluster, host: str, look: Any) -> Row:
    if not cluster.ray:
        return NOFILE.skipped(host, "no engine runs on Ray")
    limits = look["limits"]
    wanted = f"{RAY_ENOUGH_FILES} or more, {RAY_LEAST_FILES} at least"
    if row := _unmeasured(NOFILE, host, limits, wanted):
        return row
    value = limits["nofile"]
    enough = value is None or value >= RAY_ENOUGH_FILES
    verdict = PASS if enough else WARN if value >= RAY_LEAST_FILES else FAIL
    told = f"{'unlimited' if value is None else value}, in {limits['of']}"
    return NOFILE.judged(verdict, host, wanted, told, _raise(cluster, host, "nofile"))


def _shm(cluster: Cluster, host: str, look: Any) -> Row:
    memory = look["memory"]
    shared = memory["shared"]
    # What our own processes already put there is not missing.
    size = shared["total"] if look["running"] else shared["free"]
    devices = int(cluster.hosts[host]["accelerator_count"])
    accelerated = has_devices(cluster.kind(host)) and devices > 1
    store = min(RAY_SHARE * memory["available"], RAY_MOST_BYTES) if cluster.ray else 0
    least = DEVICE_SHM_BYTES if accelerated else QUEUE_BYTES
    enough = max(least, store)
    verdict = PASS if size >= enough else FAIL if size < least else WARN
    wanted = f"{gib(least)} at least"
    if store > least:
        wanted = f"{gib(enough)} for Ray's object store, {gib(least)} at least"
    target = max(1, -(-int(enough) // GIB))
    fix = (
        f"mount -o remount,size={target}G /dev/shm; in a container start it with "
        f"--shm-size={target}g or --ipc=host; ls -l /dev/shm shows what was left there"
    )
    if cluster.limits:
        fix = f"ls -l /dev/shm shows what was left there; {cluster.limits}"
    told = f"{gib(size)} free of {gib(shared['total'])}"
    return SHM.judged(verdict, host, wanted, told, fix)


def _huge_pages(host: str, look: Any) -> Row:
    if not any(card["efa"] for card in look["rdma"].values()):
        return HUGE_PAGES.skipped(host, "no EFA card, and nothing else here takes huge pages")
    total = look["memory"]["huge_pages"].get(EFA_PAGE_KIB, {}).get("total", 0)
    verdict = PASS if total >= EFA_HUGE_PAGES else FAIL
    fix = f"sysctl -w vm.nr_hugepages={EFA_HUGE_PAGES}; or set FI_EFA_USE_HUGE_PAGE=0"
    wanted = f"{EFA_HUGE_PAGES} pages of 2 MiB"
    return HUGE_PAGES.judged(verdict, host, wanted, f"{total} pages", fix)


def _host_memory(host: str, look: Any) -> Row:
    memory = look["memory"]
    held = memory["strangers"]["bytes"]
    verdict = WARN if held > memory["total"] / 2 else PASS
    largest = ", ".join(
        f"process {one['pid']} ({one['command']}) of {one['user']} {gib(one['bytes'])}"
        for one in memory["strangers"]["largest"]
    )
    told = f"{gib(held)} of {gib(memory['total'])}" + (f": {largest}" if verdict == WARN else "")
    fix = "ask their users to end them, or give this cluster hosts of its own"
    return HOST_MEMORY.judged(verdict, host, "at most half of it", told, fix)
