"""The verb `vllm-ansible bundle`: one file with all that hosts without a way out need."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ansible import __file__ as package
from vllm_ansible.environment.lock import unserved
from vllm_ansible.problem import PlanError, Problem

from . import archive, start, wanted
from .wheels import Target, Wheelhouse, locked

OK, REFUSED = 0, 2
CACHE = "~/.cache/vllm-ansible/wheels"
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
# Beside a project that was itself unpacked from a bundle, where no git tells what belongs to it.
MADE_HERE = {".venv", ".git", "runs", "state", "build", "__pycache__"}


@dataclass(frozen=True)
class Wish:
    """What a bundle is to hold, as the command line and the inventory say."""

    repository: Path
    inventory: Path
    architecture: str
    pythons: tuple[str, ...]
    engine_python: str
    locks: tuple[str, ...]
    models: dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle; 0 is made, 2 is refused."""
    options = parser().parse_args(arguments)
    try:
        written = make(options, wish_of(options, Path(package).resolve().parents[2]))
    except PlanError as error:
        sys.stderr.write("".join(f"vllm-ansible: {one.sentence()}\n" for one in error.problems))
        return REFUSED
    size = sum(path.stat().st_size for path in written)
    name = Path(options.inventory).name
    pattern = str(Path(options.to).name) + ("*" if len(written) > 1 else "")
    sys.stdout.write(
        f"{len(written)} file{'s' if len(written) > 1 else ''}, {size / 1e9:.2f} GB: "
        f"{written[0]}{f' to {written[-1].name}' if len(written) > 1 else ''}\n"
        f"there: cat {pattern} | tar -x && python3 {name}/start\n"
    )
    return OK


def parser() -> argparse.ArgumentParser:
    """Return what the verb understands."""
    found = argparse.ArgumentParser(prog="vllm-ansible bundle", description=__doc__)
    add = found.add_argument
    add("-i", "--inventory", required=True, help="directory of the inventory; it goes along")
    add("--to", required=True, metavar="FILE", help="the tar that is written")
    add("--part-size", default="0", metavar="SIZE", help="split into parts, such as 4G (no)")
    here = "{}.{}".format(*sys.version_info[:2])
    add(
        "--python",
        action="append",
        metavar="X.Y",
        help=f"the system's Python of controller and hosts; more than once for several ({here})",
    )
    add("--architecture", choices=["x86_64", "aarch64"], default="x86_64", help="of all (x86_64)")
    add(
        "--lock",
        action="append",
        metavar="NAME",
        help="engine's lock in requirements/; by the inventory's accelerator unless named",
    )
    add("--key", metavar="FILE", help="sign with this SSH key; Ed25519 gives equal bytes each time")
    add("--cache", default=CACHE, metavar="DIR", help=f"where wheels are kept ({CACHE})")
    return found


def make(options: argparse.Namespace, wish: Wish) -> list[Path]:
    """Fetch, list, sign and pack; return the files that were written."""
    size = part_bytes(options.part_size)
    house = Wheelhouse(Path(options.cache).expanduser(), _say)
    packages = gather(wish, house)
    files: dict[str, Path | bytes] = {
        **{f"{start.PROJECT}/{name}": path for name, path in project(wish).items()},
        **{name: house.place / Path(name).name for name in packages},
        start.MANIFEST: (json.dumps(manifest(wish), indent=1, sort_keys=True) + "\n").encode(),
        "start": Path(start.__file__).read_bytes(),
        start.SETTINGS[0]: start.SETTINGS[1],
    }
    _say(f"{len(packages)} packages, {len(files)} files")
    digests = {
        **packages,
        **{name: _digest(files[name]) for name in files.keys() - packages.keys()},
    }
    sums = "".join(f"{digests[name]}  {name}\n" for name in sorted(files)).encode()
    first: dict[str, Path | bytes] = {start.SUMS: sums}
    if options.key:
        first[start.SIGNATURE] = signature(sums, options.key)
    # What tells whether all came is what comes first.
    first |= {name: files[name] for name in ("start", start.MANIFEST)}
    rest = {name: files[name] for name in sorted(files) if name not in first}
    to = Path(options.to).expanduser().absolute()
    return archive.pack(to, wish.inventory.name, {**first, **rest}, size)


def wish_of(options: argparse.Namespace, repository: Path) -> Wish:
    """Return what is wanted; raise PlanError for what cannot be."""
    inventory = Path(options.inventory)
    if not inventory.is_dir():
        inventory = repository / "inventories" / options.inventory
    if not inventory.is_dir() or inventory.resolve().parent != repository / "inventories":
        raise PlanError(
            Problem(
                f"{options.inventory} is not an inventory of this project",
                expected=f"a directory in {repository / 'inventories'}",
                fix="put the inventory there: it goes along with the project",
            )
        )
    hosts = wanted.hosts_of(repository, inventory)
    locks = options.lock or wanted.engine_locks(hosts)
    absent = [name for name, digest in wanted.lock_digests(repository, locks).items() if not digest]
    if absent:
        message = f"requirements/{absent[0]}.txt does not exist"
        raise PlanError(Problem(message, where="--lock", fix="name one without its ending"))
    python = str(hosts[0].get("engine_python") or wanted.DEFAULT_PYTHON)
    judged = (unserved(name.removeprefix("engine-"), python, options.inventory) for name in locks)
    if problem := next(filter(None, judged), None):
        raise PlanError(problem)
    here = "{}.{}".format(*sys.version_info[:2])
    return Wish(
        repository=repository,
        inventory=inventory.resolve(),
        architecture=options.architecture,
        locks=tuple(sorted(set(locks))),
        pythons=tuple(sorted(set(options.python or [here]), key=_release)),
        engine_python=python,
        models=wanted.package_lines(list(wanted.models_of(hosts).values())),
    )


def gather(wish: Wish, house: Wheelhouse) -> dict[str, str]:
    """Fetch all wheels, and return the SHA-256 of each by its path in the bundle."""

    def bring(names: Sequence[str], python: str) -> dict[str, str]:
        target = Target(python, wish.architecture)
        texts = {name: wish.repository / "requirements" / f"{name}.txt" for name in names}
        found: dict[str, str] = {}
        for name, path in texts.items():
            what = f"{name}.txt for Python {python}"
            found |= house.bring(locked(path.read_text(), target), target, what)
        return found

    hosts = bring(wish.locks, wish.engine_python)
    for line in wish.models.values():
        target = Target(wish.engine_python, wish.architecture)
        hosts |= house.bring(locked(line, target), target, "models in packages")
    controller: dict[str, str] = {}
    for python in wish.pythons:
        hosts |= bring(wanted.TOOLS, python)
        controller |= bring(wanted.CONTROLLER, python) if _release(python) >= (3, 11) else {}
    folders = start.WHEELS
    return {
        **{f"{folders[0]}/{file}": digest for file, digest in hosts.items()},
        **{f"{folders[1]}/{file}": controller[file] for file in controller.keys() - hosts.keys()},
    }


def manifest(wish: Wish) -> dict[str, Any]:
    """Return what the other side judges a bundle by."""
    names = [*wanted.CONTROLLER, *wanted.TOOLS, *wish.locks]
    return {
        **{"inventory": wish.inventory.name, "architecture": wish.architecture},
        **{"engine_locks": list(wish.locks), "engine_python": wish.engine_python},
        "pythons": [one for one in wish.pythons if _release(one) >= (3, 11)],
        "host_pythons": list(wish.pythons),
        "locks": wanted.lock_digests(wish.repository, names),
        "models": wish.models,
    }


def project(wish: Wish) -> dict[str, Path]:
    """Return the files of the project, by name: what git knows or would, and the inventory."""
    root = wish.repository
    command = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if said.returncode == 0:
        found = {root / name for name in said.stdout.split("\0") if name}
    else:
        found = {
            path for path in root.rglob("*") if not MADE_HERE & set(path.relative_to(root).parts)
        }
    found |= set(wish.inventory.rglob("*"))
    return {str(one.relative_to(root)): one for one in sorted(found) if one.is_file()}


def signature(sums: bytes, key: str) -> bytes:
    """Return the signature of ssh-keygen(1) over the list of hashes."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(Path(key).expanduser())]
    said = subprocess.run(  # noqa: S603  argv built here, no shell
        [*command, "-n", start.NAMESPACE], input=sums, capture_output=True, check=False
    )
    if said.returncode != 0:
        found = " ".join(said.stderr.decode(errors="replace").split())
        raise PlanError(Problem(f"the key does not sign: {found}", where=key))
    return said.stdout


def part_bytes(text: str) -> int:
    """Return a size such as 4G in bytes; 0 is one part."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        raise PlanError(
            Problem(f"{text!r} is not a size", expected="such as 500M", where="--part-size")
        )
    return int(match[1]) * UNITS[match[2]]


def _release(python: str) -> tuple[int, int]:
    match = re.fullmatch(r"3\.(\d+)", python)
    if match is None:
        raise PlanError(Problem(f"{python!r} is not a release", expected="3.11", where="--python"))
    return 3, int(match[1])


def _digest(source: Path | bytes) -> str:
    return (
        hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else start.digest_of(source)
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
