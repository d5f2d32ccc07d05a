"""Where driver packages come from, by distribution and architecture.

Names and keys: NVIDIA/cuda-repo-management, README.md, "GPG keys" (2026-04); the files of each key
lie beside the packages. Fingerprints: that repository's SIGNATURES.md and the keys themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.problem import PlanError, Problem

VENDOR = "https://developer.download.nvidia.com/compute/cuda/repos"
# Distribution and release to the vendor's name of the repository and the file of its key.
NAMES = {
    ("ubuntu", "22.04"): ("ubuntu2204", "3bf863cc"),
    ("ubuntu", "24.04"): ("ubuntu2404", "3bf863cc"),
    ("debian", "12"): ("debian12", "3bf863cc"),
    ("debian", "13"): ("debian13", "8793F200"),
    ("rocky", "9"): ("rhel9", "D42D0685"),
    ("rhel", "9"): ("rhel9", "D42D0685"),
}
FINGERPRINTS = {
    "3bf863cc": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "8793F200": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
    "D42D0685": "610C7B14E068A878070DA4E99CD0A493D42D0685",
}
# The vendor calls servers of Arm `sbsa`; Debian calls architectures its own way.
ARCHITECTURES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("sbsa", "arm64")}


@dataclass(frozen=True)
class Repository:
    """A repository: its packages and key, and the two files that make a host use it."""

    manager: str
    url: str
    path: str
    content: str
    key_url: str
    key_path: str
    fingerprint: str


def repository(host: Mapping[str, Any], url: str, key_url: str, fingerprint: str) -> Repository:
    """Return the repository of a host; empty texts stand for the vendor's own.

    host has name, distribution, distribution_version and architecture. Raises PlanError for a
    system that the vendor has no repository for, or that was never tried.
    """
    distribution, version = str(host["distribution"]), str(host["distribution_version"])
    release = version if distribution == "ubuntu" else version.split(".")[0]
    known = NAMES.get((distribution, release))
    architecture = ARCHITECTURES.get(str(host["architecture"]))
    if known is None or architecture is None:
        names = ", ".join(f"{name} {one}" for name, one in NAMES)
        found = f"{distribution} {version} on {host['architecture']}"
        raise PlanError(
            Problem(
                f"no driver packages are known for {found}",
                expected=f"{names} on x86_64 or aarch64",
                found=found,
                where=str(host["name"]),
                fix="install the driver by hand and set nvidia_driver_mode: check",
            )
        )
    name, key = known
    folder, debian = architecture
    base = (url or f"{VENDOR}/{name}/{folder}").rstrip("/")
    apt = distribution in ("ubuntu", "debian")
    key_path = (
        "/etc/apt/keyrings/vllm-ansible-nvidia.asc"
        if apt
        else "/etc/pki/rpm-gpg/RPM-GPG-KEY-vllm-ansible-nvidia"
    )
    return Repository(
        manager="apt" if apt else "dnf",
        url=base,
        path=(
            "/etc/apt/sources.list.d/vllm-ansible-nvidia.sources"
            if apt
            else "/etc/yum.repos.d/vllm-ansible-nvidia.repo"
        ),
        content=_sources(base, debian, key_path) if apt else _repo(base, key_path),
        key_url=key_url or f"{base}/{key}.pub",
        key_path=key_path,
        fingerprint="".join((fingerprint or FINGERPRINTS[key]).split()).upper(),
    )


def in_place(wanted: Repository, files: Mapping[str, str]) -> bool:
    """Tell whether a host uses the repository already, by our file or by anybody else's.

    Beside another entry for the same address ours must not be: apt refuses one address that is to
    be proven with two keys. files maps paths to contents.
    """
    if files.get(wanted.path, "").strip() == wanted.content.strip():
        return True
    address = re.compile(rf"^[^#]*{re.escape(wanted.url)}/?(\s|$)")
    return any(
        address.search(line)
        for path, content in files.items()
        if path != wanted.path
        for line in content.splitlines()
    )


def _sources(url: str, architecture: str, key: str) -> str:
    return (
        "# Written by vllm-ansible; changes here are lost.\n"
        f"Types: deb\nURIs: {url}/\nSuites: /\nArchitectures: {architecture}\nSigned-By: {key}\n"
    )


def _repo(url: str, key: str) -> str:
    return (
        "# Written by vllm-ansible; changes here are lost.\n"
        f"[vllm-ansible-nvidia]\nname=NVIDIA driver\nbaseurl={url}\nenabled=1\ngpgcheck=1\n"
        f"gpgkey=file://{key}\n"
    )
