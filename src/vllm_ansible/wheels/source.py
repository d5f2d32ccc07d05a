"""Bring one commit of a repository to the controller, as an archive that hosts can unpack."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vllm_ansible.problem import PlanError, Problem

# A server that sends less for a minute is given up.
STALLED = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60")


def archive(name: str, source: str, revision: str, directory: Path) -> Path:
    """Return the archive of a commit; git is asked once for each."""
    target = directory / f"{name}-{revision}.tar.gz"
    if target.exists():
        return target
    if shutil.which("git") is None:
        raise PlanError(
            Problem(
                f"the source of {name} cannot be fetched without git",
                expected="git on this machine, which runs Ansible",
                found="none",
                fix="install git here",
            )
        )
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as temporary:
        repository = Path(temporary, "repository")
        _git(["init", "--quiet", "--bare", str(repository)], name, source, revision)
        _fetch(repository, name, source, revision)
        packed = Path(temporary, "source.tar.gz")
        command = ["archive", "--format=tar.gz", f"--output={packed}", revision]
        _git([f"--git-dir={repository}", *command], name, source, revision)
        packed.rename(target)
    return target


def _fetch(repository: Path, name: str, source: str, revision: str) -> None:
    """Fetch the commit alone; from a server that refuses to give a commit by its name, all."""
    address = str(Path(source).expanduser()) if source.startswith("~") else source
    fetch = [f"--git-dir={repository}", *(word for one in STALLED for word in ("-c", one))]
    fetch += ["fetch", "--quiet", "--no-tags"]
    try:
        _git([*fetch, "--depth=1", address, revision], name, source, revision)
    except PlanError as error:
        if "unadvertised" not in error.problems[0].found:
            raise
        _git([*fetch, address, "+refs/*:refs/remotes/all/*"], name, source, revision)


def _git(arguments: Sequence[str], name: str, source: str, revision: str) -> None:
    """Run git, which must neither ask nor wait for a person."""
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": ssh}
    for inherited in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(inherited, None)
    done = subprocess.run(  # noqa: S603 - argv built here, no shell
        ["git", *arguments],  # noqa: S607 - the one on the operator's path
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise PlanError(
            Problem(
                f"the source of {name} cannot be fetched",
                expected=f"commit {revision[:12]} in {source}",
                found=" | ".join(said[:3]) or f"git ended with {done.returncode}",
                where="engine_build",
                fix="correct source or revision, or let this machine reach the repository",
            )
        )
