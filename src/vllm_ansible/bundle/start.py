"""Verify a bundle, install the controller from it, and run site.yml.

It lies as `start` at the top of each bundle, and is run there by the system's Python before
anything is installed: standard library only, nothing of this project imported.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence

SUMS, SIGNATURE, MANIFEST = "SHA256SUMS", "SHA256SUMS.sig", "manifest.json"
PROJECT, WHEELS = "project", ("wheels/hosts", "wheels/controller")
# uv prefers a release that its cache has seen on an index to the file in a directory, offline too.
SETTINGS = ("wheels/hosts/uv.toml", b"no-index = true\n")
# What ssh-keygen -Y calls namespace and identity: a signature is good for bundles alone.
NAMESPACE = "vllm-ansible-bundle"
CHUNK = 1 << 20
NAMED = 3


class BundleError(Exception):
    """The bundle cannot be used; one sentence says why."""


def listed(bundle: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a bundle, by its path."""
    try:
        lines = (bundle / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BundleError(
            f"{bundle} is not a bundle: {SUMS} cannot be read ({error.strerror}); name the "
            "directory that the bundle was unpacked to"
        ) from error
    found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if MANIFEST not in found or any(len(digest) != 64 for digest in found.values()):
        raise BundleError(f"the bundle is damaged: {bundle / SUMS} is cut off; copy it here again")
    return found


def verify(bundle: pathlib.Path, known: Mapping[str, list[int]] | None = None) -> None:
    """Raise BundleError unless every file is there and is what was packed.

    known: by path, the `stamp` of a file that was verified before; such a file is not read again.
    """
    sums = listed(bundle)
    missing = [name for name in sums if not (bundle / name).is_file()]
    if missing:
        raise BundleError(
            f"the bundle is incomplete: {_some(missing)} not found in {bundle}; unpack all its "
            "parts here again"
        )
    unread = [name for name in sums if stamp(bundle / name) != (known or {}).get(name)]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = pool.map(lambda name: digest_of(bundle / name), unread)
        # zip is not strict: the sentence about a Python that is too old is said by that one.
        found = dict(zip(unread, digests))  # noqa: B905
    damaged = [name for name in unread if found[name] != sums[name]]
    if damaged:
        raise BundleError(
            f"the bundle is damaged: {_some(damaged)} in {bundle} does not have the SHA-256 that "
            f"{SUMS} names; copy the bundle here again"
        )


def stamp(path: pathlib.Path) -> list[int]:
    """Return what changes whenever a file is written: size, nanoseconds of that time, inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def digest_of(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, or why it cannot be read."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as content:
            while chunk := content.read(CHUNK):
                found.update(chunk)
    except OSError as error:
        return str(error.strerror)
    return found.hexdigest()


def verify_signature(bundle: pathlib.Path, signers: str) -> None:
    """Raise BundleError unless one of these signed it, listed as ssh-keygen(1) says."""
    if not (bundle / SIGNATURE).is_file():
        raise BundleError(
            f"the bundle is not signed: no {SIGNATURE} in {bundle}; leave --signers out"
        )
    command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", NAMESPACE, "-n", NAMESPACE]
    with (bundle / SUMS).open("rb") as sums:
        said = subprocess.run(  # noqa: S603  argv built here, no shell
            [*command, "-s", str(bundle / SIGNATURE)], stdin=sums, capture_output=True, text=True
        )
    if said.returncode != 0:
        found = " ".join((said.stderr or said.stdout).split())
        raise BundleError(f"the bundle is not signed by anyone whom {signers} names: {found}")


def offline(bundle: pathlib.Path) -> dict[str, str]:
    """Return the variables by which pip and uv take packages from a bundle, and ask nobody."""
    places = [str(bundle / folder) for folder in WHEELS]
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": " ".join(places),
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": ",".join(places),
        "UV_CONFIG_FILE": str(bundle / SETTINGS[0]),
    }


def install(bundle: pathlib.Path) -> pathlib.Path:
    """Install the controller beside the project unless it is there, and return its programs."""
    project = bundle / PROJECT
    place, mark = project / ".venv", project / ".venv" / "compiled"
    digest = digest_of(bundle / SUMS)
    if mark.is_file() and mark.read_text() == digest:
        return place / "bin"
    python = _python(json.loads((bundle / MANIFEST).read_text())["pythons"])
    print("installing the controller into", place, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    # Without pip: what Debian leaves out of its Python is not needed then.
    _run([python, "-m", "venv", "--without-pip", str(place)], bundle)
    uv = [str(_unpacked_uv(bundle, place)), "pip", "install", "--quiet"]
    uv += ["--python", str(place / "bin" / "python")]
    locks = [project / "requirements" / name for name in ("uv.txt", "controller.txt")]
    _run([*uv, "--require-hashes", *(f"-r{lock}" for lock in locks)], bundle)
    _run([*uv, "--no-deps", "--no-build-isolation", "--editable", str(project)], bundle)
    # For make: it then installs nothing, which it could not without a way out.
    for name in ("uv", "controller"):
        (place / name).touch()
    mark.write_text(digest)
    return place / "bin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 2 for a bundle that is refused, else what site.yml returns."""
    parser = argparse.ArgumentParser(prog="start", description="Start what this bundle brings.")
    parser.add_argument("--signers", help="allowed signers (ssh-keygen(1)); refuse all others")
    parser.add_argument("--only-install", action="store_true", help="leave site.yml to you")
    parser.add_argument("ansible", nargs="*", metavar="-- ...", help="more for ansible-playbook")
    options = parser.parse_args(arguments)
    bundle = pathlib.Path(__file__).resolve().parent
    try:
        if options.signers:
            verify_signature(bundle, options.signers)
        elif (bundle / SIGNATURE).is_file():
            print("signed, not checked by whom: --signers FILE does")
        print(f"verifying {len(listed(bundle))} files", flush=True)
        verify(bundle)
        programs = install(bundle)
    except BundleError as error:
        print(f"start: {error}", file=sys.stderr)
        return 2
    inventory = json.loads((bundle / MANIFEST).read_text())["inventory"]
    command = ["ansible-playbook", "site.yml", "-i", f"inventories/{inventory}"]
    command += ["-e", f"sources_bundle={bundle}", *options.ansible]
    print(f"cd {bundle / PROJECT} && .venv/bin/{' '.join(command)}", flush=True)
    if options.only_install:
        return 0
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    settings = {"PATH": path, "ANSIBLE_CONFIG": str(bundle / PROJECT / "ansible.cfg")}
    os.chdir(bundle / PROJECT)
    os.execvpe(command[0], command, {**os.environ, **settings})  # noqa: S606  no shell is wanted


def _python(releases: Sequence[str]) -> str:
    """Return a Python for which the bundle has the controller's packages."""
    if "{}.{}".format(*sys.version_info[:2]) in releases and sys.version_info >= (3, 11):
        return sys.executable
    found = [path for release in releases if (path := shutil.which(f"python{release}"))]
    if not found:
        raise BundleError(
            f"the bundle has the controller for Python {', '.join(releases)}, and this is "
            "{}.{}; install one of those, or make the bundle with --python ".format(
                *sys.version_info[:2]
            )
            + "{}.{}".format(*sys.version_info[:2])
        )
    return found[-1]


def _unpacked_uv(bundle: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """Take the program out of uv's own wheel."""
    machine = os.uname().machine
    wheels = [path for folder in WHEELS for path in (bundle / folder).glob(f"uv-*{machine}.whl")]
    if not wheels:
        raise BundleError(
            f"the bundle has no uv for {machine}; make it with --architecture {machine}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        name = next(one for one in wheel.namelist() if one.endswith(".data/scripts/uv"))
        program = place / "uv-of-bundle"
        program.write_bytes(wheel.read(name))
    program.chmod(0o755)
    return program


def _run(command: Sequence[str], bundle: pathlib.Path) -> None:
    environment = {**os.environ, **offline(bundle), "VIRTUAL_ENV": "", "PYTHONPATH": ""}
    said = subprocess.run(  # noqa: S603  argv built here, no shell
        command, env=environment, capture_output=True, text=True
    )
    if said.returncode != 0:
        found = " | ".join((said.stderr or said.stdout).strip().splitlines()[-4:])
        raise BundleError(f"the controller cannot be installed: {' '.join(command)}: {found}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


if __name__ == "__main__":
    sys.exit(main())
