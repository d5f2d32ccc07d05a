"""Huge pages for the buffers of EFA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.system.judged import HEADER, Difference, File, Judged, Repair

PATH = "/etc/sysctl.d/90-vllm-ansible-hugepages.conf"
# libfabric's EFA provider takes 110 MiB of huge pages for each endpoint, one per processor, and
# none where a page is larger than 16 MiB (awslabs/libfabric-ci-scripts, efa-check.sh).
ENDPOINT_KIB = 110 * 1024
LARGEST_PAGE_KIB = 16 * 1024


def irrelevant(devices: Sequence[Mapping[str, Any]], look: Mapping[str, Any]) -> str:
    """Return why huge pages do not matter here; empty where they do."""
    if not any(device["driver"] == "efa" for device in devices):
        return "no EFA device"
    page = look["hugepages"]["page_kib"]
    if not 0 < page <= LARGEST_PAGE_KIB:
        return f"EFA uses no huge pages of {page} KiB"
    return ""


def judge(look: Mapping[str, Any]) -> Judged:
    """Compare the pages that are set aside with what EFA takes."""
    found = look["hugepages"]
    wanted = ENDPOINT_KIB * found["processors"] // found["page_kib"] + 1
    pages = found["pages"] or 0
    if pages >= wanted:
        return Judged()
    room = (wanted - pages) * found["page_kib"]
    difference = Difference(
        what="huge pages",
        expected=f"{wanted} of {found['page_kib']} KiB ({found['processors']} processors)",
        found=str(pages),
        fix=f"write vm.nr_hugepages = {wanted} to {PATH}, then sysctl --load {PATH}; fragmented "
        "memory may need a reboot",
        # libfabric falls back to small pages.
        needed=False,
    )
    if room > found["available_kib"]:
        note = f"{wanted} huge pages would take {room >> 20} GiB, more memory than is available"
        return Judged((difference,), (note,))
    file = File(PATH, f"{HEADER}vm.nr_hugepages = {wanted}\n")
    return Judged((difference,), (), Repair(files=(file,), commands=(("sysctl", "--load", PATH),)))
