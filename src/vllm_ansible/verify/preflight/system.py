"""What the system itself must bring: page size, a compiler, a clock that is set."""

from __future__ import annotations

from typing import Any

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row

PAGES = Check("page_size", "the size of memory pages", "some wheels for aarch64 expect 4 KiB")
COMPILER = Check(
    "compiler", "compiler and Python's headers", "Triton and torch compile when the engine starts"
)
CLOCK = Check(
    "clock", "a clock set by others", "logs of clocks that drift apart cannot be compared"
)
CHECKS = (PAGES, COMPILER, CLOCK)
USUAL_PAGE = 4096


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    found = []
    for host in cluster.hosts:
        system = cluster.looks[host]["system"]
        found += [_pages(host, system), _compiler(cluster, host, system), _clock(host, system)]
    return found


def _pages(host: str, system: Any) -> Row:
    if system["architecture"] != "aarch64":
        return PAGES.skipped(host, f"{system['architecture']} has pages of 4 KiB only")
    size = int(system["page_size"])
    # GH200 hosts of a cloud come with 64 KiB: allocators that assume 4 KiB abort there, and every
    # small mapping takes sixteen times the memory.
    fix = "boot a kernel with 4 KiB pages if a library aborts with an unsupported page size"
    verdict = PASS if size == USUAL_PAGE else WARN
    wanted = f"{USUAL_PAGE // 1024} KiB"
    return PAGES.judged(verdict, host, wanted, f"{size // 1024} KiB", fix)


def _compiler(cluster: Cluster, host: str, system: Any) -> Row:
    if not has_devices(cluster.kind(host)):
        return COMPILER.skipped(host, "nothing is compiled at run time on processors")
    missing = [] if system["compiler"] else ["a C compiler"]
    missing += [] if system["headers"] else [f"the headers of Python {system['python']}"]
    debian = cluster.hosts[host].get("distribution") in ("debian", "ubuntu")
    fix = "apt-get install -y gcc python3-dev" if debian else "dnf install -y gcc python3-devel"
    told = f"missing: {', '.join(missing)}" if missing else "both there"
    return COMPILER.judged(FAIL if missing else PASS, host, "both", told, fix)


def _clock(host: str, system: Any) -> Row:
    if system["container"]:
        return CLOCK.skipped(host, "a container has the clock of its machine")
    if system["clock_synchronised"] is None:
        return CLOCK.skipped(host, "the kernel does not say")
    good = system["clock_synchronised"]
    fix = "systemctl enable --now systemd-timesyncd, or chronyd; timedatectl shows the state"
    told = "yes" if good else "no: the kernel calls its clock unsynchronised"
    return CLOCK.judged(PASS if good else WARN, host, "synchronised", told, fix)
