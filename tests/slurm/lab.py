"""A real Slurm on lab hosts: the first is login node and controller, the others compute.

python -m tests.slurm.lab up DIRECTORY [COMPUTE NODES]
python -m tests.slurm.lab down DIRECTORY
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.flows.clone import Clone
from vllm_ansible.lab import Lab
from vllm_ansible.lab.cache import MOUNT
from vllm_ansible.lab.commands import podman
from vllm_ansible.lab.host import seed_archive

from .settings import CGROUP, GPUS, PACKAGES, SETUP, gres_conf, slurm_conf

NAME = "slurm-test"
# As high as users of a site are; the hosts agree on them because each makes them alike.
USERS = {"ann": 20001, "bob": 20002}
READY_SECONDS = 300.0
# Between two questions: each starts a process in a container, for 0.15 s of processor time.
EVERY = 1.0
MEMORY_MIB = 16000


class SlurmLab:
    """The hosts, with a home directory that all of them share, as at any site."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        names = [one.name for one in lab.record.hosts]
        self.login, self.computes = names[0], names[1:]
        self._clones: dict[str, Path] = {}

    @property
    def shared(self) -> Path:
        """The shared file system, as this machine sees it."""
        return self.lab.cache.host_directory(self.lab.record.token, "shared")

    def inside(self, path: Path) -> Path:
        """Return a path of the shared file system as the hosts see it."""
        return MOUNT / path.relative_to(self.lab.cache.root)

    def home(self, user: str) -> Path:
        """Return a user's home directory as this machine sees it."""
        return self.shared / "home" / user

    def root(self, host: str, *argv: str, check: bool = True) -> str:
        """Run a command on a host as root and return what it printed."""
        return podman("exec", self.lab.record.host(host).container, *argv, check=check)

    def command(self, user: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs another as a user who has logged in to the login node."""
        container = self.lab.record.host(self.login).container
        home = self.inside(self.home(user))
        # A login shell: profile and all.
        inner = ["bash", "-lc", f"cd {home} && exec {shlex.join(argv)}"]
        where = ["podman", "exec", "--user", user, "--env", f"HOME={home}", "--env", f"USER={user}"]
        return [*where, container, *inner]

    def run(
        self, user: str, *argv: str, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user on the login node."""
        done = subprocess.run(
            self.command(user, argv), capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode == 0 or not check, (argv, done.stdout, done.stderr)
        return done

    def controller(self, user: str) -> Path:
        """Give a user a clone of the working tree and Ansible; return the clone's directory."""
        if user in self._clones:
            return self._clones[user]
        clone = self._clones[user] = self.home(user) / "vllm-ansible"
        Clone(clone)
        venv, tool = self.shared / "venv", self.shared / "uv"
        if not venv.exists():
            shutil.copy2(Path(sys.executable).with_name("uv"), tool)
            sources = self.lab.sources().environment | self.lab.cache.environment
            words = [f"{name}={value}" for name, value in sources.items()]
            inside = str(self.inside(venv))
            lock = str(self.inside(clone / "requirements/controller.txt"))
            self.root(self.login, "python3", "-m", "venv", "--without-pip", inside)
            install = ["pip", "install", "--quiet", "--require-hashes", "-r", lock]
            uv = str(self.inside(tool))
            self.root(self.login, "env", *words, uv, *install, "--python", f"{inside}/bin/python")
            # As a user's own is: else no run may write bytecode, and each compiles Ansible anew.
            for path in (venv, *venv.rglob("*")):
                os.lchown(path, USERS[user], USERS[user])
        profile = self.home(user) / ".bash_profile"
        profile.write_text(f"export PATH={self.inside(venv)}/bin:$PATH\n")
        # What a user has on disk is the user's.
        for path in (profile, *profile.parent.rglob("*"), clone):
            os.lchown(path, USERS[user], USERS[user])
        return clone

    def make(self) -> None:
        """Write every host's files and start Slurm; wait until all nodes are idle."""
        key = secrets.token_hex(64)
        home = self.shared / "home"
        home.mkdir(parents=True, exist_ok=True)
        for path in (self.shared, home):
            path.chmod(0o755)
        for user, number in USERS.items():
            self.home(user).mkdir(exist_ok=True)
            os.chown(self.home(user), number, number)
        conf = slurm_conf(self.login, self.computes, MEMORY_MIB, {})
        files = {
            "etc/munge/munge.key": (0o400, key),
            "etc/slurm/slurm.conf": (0o644, conf),
            "etc/slurm/gres.conf": (0o644, gres_conf()),
            "etc/slurm/cgroup.conf": (0o644, CGROUP),
        }
        for host in (self.login, *self.computes):
            podman(
                "cp", "-", f"{self.lab.record.host(host).container}:/", data=seed_archive(files, {})
            )
            self.root(host, "sh", "-ec", self._setup(host))
        for host in self.computes:
            self.root(host, "systemctl", "start", "slurmd")
        self.wait_for(lambda: self._states() == {"idle"}, "all nodes idle")

    def _setup(self, host: str) -> str:
        lines = ["chown munge:munge /etc/munge/munge.key"]
        for user, number in USERS.items():
            home = self.inside(self.home(user))
            lines += [
                f"groupadd -f -g {number} {user}",
                f"id {user} >/dev/null 2>&1 ||"
                f" useradd -M -d {home} -s /bin/bash -u {number} -g {number} {user}",
            ]
        lines += [
            "install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm",
            "install -d /var/lib/slurm/slurmd",
            "systemctl start munge",
        ]
        # Device files that stand for GPUs: any will do, for nothing opens them.
        lines += [f"test -e /dev/gpu{one} || mknod /dev/gpu{one} c 1 3" for one in range(GPUS)]
        lines += ["systemctl start slurmctld"] * (host == self.login)
        return "\n".join(lines)

    def _states(self) -> set[str]:
        said = self.root(self.login, "sinfo", "--noheader", "-N", "-o", "%t", check=False)
        return set(said.split())

    def wait_for(
        self, condition: Callable[[], bool], what: str, seconds: float = READY_SECONDS
    ) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            said = self.root(self.login, "sinfo", "-N", "-l", check=False)
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s: {said}"
            time.sleep(0.2)


@contextmanager
def slurm_lab(directory: Path, computes: int = 2) -> Iterator[SlurmLab]:
    """Make a lab with a running Slurm, and leave nothing of it behind.

    Whoever works on these tests names a directory to keep it in, and it is there the next time.
    """
    if kept := os.environ.get("VLLM_ANSIBLE_SLURM_DIR"):
        yield SlurmLab(Lab.open(NAME, root=Path(kept)))
        return
    with Lab.create(1 + computes, NAME, packages=PACKAGES, setup=SETUP, root=directory) as lab:
        made = SlurmLab(lab)
        made.make()
        yield made


def main(verb: str, directory: str, computes: str = "2") -> None:
    """Make or remove a lab by hand."""
    root = Path(directory).absolute()
    if verb == "down":
        Lab.open(NAME, root=root).down()
        return
    lab = Lab.create(
        1 + int(computes), NAME, packages=PACKAGES, setup=SETUP, root=root, progress=print
    )
    SlurmLab(lab).make()


if __name__ == "__main__":
    main(*sys.argv[1:])
