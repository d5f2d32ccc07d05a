"""Which wheels a lock takes on hosts of a Python and an architecture, and how they come here."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from vllm_ansible.problem import PlanError, Problem

from .start import digest_of

# That of the C library of RHEL 9, the oldest system that is supported.
LIBC_MINOR = 34
# So many are asked for at once: what was fetched before an interruption is not fetched again.
GROUP = 12
_LINE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)\s*(?:;\s*(.*?))?\s*$")


@dataclass(frozen=True)
class Target:
    """What wheels are for: a release of Python, such as 3.11, and an architecture."""

    python: str
    architecture: str

    def platforms(self) -> list[str]:
        """Return the platforms whose wheels such a host loads, best first."""
        names = [f"manylinux_2_{minor}" for minor in range(LIBC_MINOR, 4, -1)]
        # manylinux1 and manylinux2010 were never defined for aarch64; naming them does no harm.
        names += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
        return [f"{name}_{self.architecture}" for name in names]

    def tags(self) -> list[Tag]:
        """Return what such a host can load, best first."""
        release = (int(self.python.split(".")[0]), int(self.python.split(".")[1]))
        abi = f"cp{release[0]}{release[1]}"
        specific = cpython_tags(release, abis=[abi], platforms=self.platforms())
        general = compatible_tags(release, interpreter=abi, platforms=self.platforms())
        return [*specific, *general]

    def wants(self, marker: str) -> bool:
        """Tell whether a line of a lock applies; which patch release a host has is not known."""
        known = {
            **{"python_version": self.python, "platform_machine": self.architecture},
            **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
            **{"implementation_name": "cpython", "platform_python_implementation": "CPython"},
        }
        releases = [f"{self.python}.{patch}" for patch in (0, 99)]
        return not marker or any(
            Marker(marker).evaluate({**known, "python_full_version": one}) for one in releases
        )


@dataclass(frozen=True)
class Locked:
    """One distribution as a lock names it."""

    name: str
    version: str
    hashes: frozenset[str]

    def line(self) -> str:
        """Return it for pip, without its marker: pip would judge by the Python that runs it."""
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(self.hashes))
        return f"{self.name}=={self.version} {hashes}\n"


def locked(text: str, target: Target) -> list[Locked]:
    """Return what a lock with hashes names for a target."""
    found = []
    lines = re.sub(r"[ \t]*#.*", "", text).replace("\\\n", " ").splitlines()
    for line in filter(str.strip, lines):
        requirement, *options = re.split(r"\s--hash=sha256:", line)
        match = _LINE.match(requirement.strip())
        if match is None:
            raise PlanError(
                Problem(
                    "a line of the lock names no release",
                    expected="name==version --hash=sha256:...",
                    found=requirement.strip(),
                    fix="lock with uv pip compile --generate-hashes",
                )
            )
        if target.wants(match[3] or ""):
            found.append(Locked(match[1], match[2], frozenset(map(str.strip, options))))
    return found


def best(one: Locked, files: Iterable[str], target: Target) -> str:
    """Return the file that such a host installs, of those that are here; "" where there is none."""
    order = _order(target)
    wanted = (canonicalize_name(one.name), Version(one.version))
    ranks = {
        file: min(order[tag] for tag in parsed[2] & order.keys())
        for file in files
        if (parsed := _parsed(file))
        and parsed[:2] == wanted
        and not order.keys().isdisjoint(parsed[2])
    }
    return min(ranks, key=lambda file: ranks[file], default="")


@lru_cache
def _order(target: Target) -> dict[Tag, int]:
    return {tag: place for place, tag in reversed(list(enumerate(target.tags())))}


@lru_cache(maxsize=4096)
def _parsed(file: str) -> tuple[str, Version, frozenset[Tag]] | None:
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    return name, version, tags


class Wheelhouse:
    """A directory of verified wheels; it is kept, so that a second bundle fetches none."""

    def __init__(self, place: Path, say: Callable[[str], None]) -> None:
        self.place = place
        self._say = say
        self._digests: dict[str, str] = {}
        place.mkdir(parents=True, exist_ok=True)

    def bring(self, wanted: Sequence[Locked], target: Target, what: str) -> dict[str, str]:
        """Fetch what is not here yet, and return the SHA-256 of each wheel by its file."""
        missing = [one for one in wanted if not self._file(one, target)]
        for begin in range(0, len(missing), GROUP):
            self._say(f"{what}: {len(wanted) - len(missing) + begin} of {len(wanted)} packages")
            _fetch(missing[begin : begin + GROUP], target, self.place)
        found = {one: self._file(one, target) for one in wanted}
        lacking = [one.name for one, file in found.items() if not file]
        if lacking:
            raise PlanError(
                Problem(
                    f"no wheel of {', '.join(lacking)} is what {what} locks",
                    expected=f"a wheel for Python {target.python} on {target.architecture}",
                    found="none with a hash of the lock",
                    where=str(self.place),
                    fix="check the mirror, or build a wheel and lock that",
                )
            )
        return {file: self._digests[file] for file in found.values()}

    def _file(self, one: Locked, target: Target) -> str:
        """Return the file of a distribution if it is here and what the lock names."""
        file = best(one, (path.name for path in self.place.glob("*.whl")), target)
        if file and file not in self._digests:
            self._digests[file] = digest_of(self.place / file)
        if not file or self._digests[file] in one.hashes:
            return file
        # Cut off by a full disk, or of an earlier lock.
        (self.place / file).unlink()
        del self._digests[file]
        return self._file(one, target)


def _fetch(wanted: Sequence[Locked], target: Target, place: Path) -> None:
    """Have pip fetch wheels, from where and how it is configured to."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(place)]
    command += ["--implementation", "cp", "--python-version", target.python]
    for abi in (f"cp{target.python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in target.platforms():
        command += ["--platform", platform]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
        lines.writelines(one.line() for one in wanted)
        lines.flush()
        said = subprocess.run(  # noqa: S603  argv built here, no shell
            [*command, "-r", lines.name], capture_output=True, text=True, check=False
        )
    if said.returncode != 0:
        raise PlanError(
            Problem(
                "pip cannot fetch the locked wheels: "
                + " | ".join((said.stderr or said.stdout).strip().splitlines()[-3:]),
                expected="every wheel of the lock from the package index",
                found=f"exit status {said.returncode}",
                where=", ".join(one.name for one in wanted),
                fix="give pip a way there (PIP_INDEX_URL, HTTPS_PROXY); torch for CPUs is on "
                "PyTorch's own index (PIP_EXTRA_INDEX_URL) or in a directory (PIP_FIND_LINKS)",
            )
        )
