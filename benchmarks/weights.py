"""How long a model takes from the hub to every host, beside other ways to bring it there.

    python benchmarks/weights.py --hosts 2 4 8 --megabytes 512 --rate 200mbit --outside 25e6

Needs root: makes a lab whose hosts have links of --rate (bits a second, each direction), and a hub
on this machine that gives --outside bytes a second in all. One line of JSON for each number of
hosts:
seconds from the first byte to the last host verified, the bound max(size / outside, size / link),
their ratio, and `busy`, the share of this machine's processors that worked (above 0.7 it is they
that are measured), for

- ours: each file enters at one host in turn and goes from host to host;
- hub: every host takes all of it from the hub;
- star: one host takes it from the hub, and all others from that one, while it arrives;
- rsync, shared, libtorrent, aria2: see weights_others.py, and the packages that these need.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from processors import busy_share
from weights_others import Others

from vllm_ansible.lab import Lab
from vllm_ansible.lab.cache import MOUNT
from vllm_ansible.lab.commands import run
from vllm_ansible.lab.keys import ssh_options
from vllm_ansible.lab.paths import REPOSITORY
from vllm_ansible.weights.spread import upstream, width

PORT = 20014
FILES = 32
PYTHON = Path("/usr/bin/python3.11")
PROGRAM = REPOSITORY / "roles" / "weights" / "files" / "hub"


def make_tree(directory: Path, size: int) -> list[dict[str, Any]]:
    """Write a model of so many bytes and return its files as the hub lists them."""
    chance = random.Random(1)  # noqa: S311  content, no secret
    files = []
    for number in range(FILES):
        content = chance.randbytes(size // FILES)
        name = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        (directory / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append({"name": name, "bytes": len(content), "sha256": digest})
    return files


def tools(lab: Lab) -> Path:
    """Return the packages of the tools environment, as hosts see them."""
    lock = REPOSITORY / "requirements" / "tools.txt"
    name = f"tools-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    place = lab.cache.root / name
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    if not (place / "complete").exists():
        run([uv, "venv", "--quiet", "--allow-existing", "--python", str(PYTHON), str(place)])
        target = f"--python={place / 'bin/python'}"
        run([uv, "pip", "install", "--quiet", target, "--require-hashes", "-r", str(lock)])
        (place / "complete").touch()
    return MOUNT / name / "lib" / "python3.11" / "site-packages"


class Side:
    """One way to bring the model to all hosts of a lab."""

    def __init__(self, lab: Lab, files: list[dict[str, Any]], hub: str, commit: str) -> None:
        self.lab, self.files, self.hub, self.commit = lab, files, hub, commit
        self.hosts = [host.name for host in lab.record.hosts]
        self.place = lab.cache.root / f"weights-{lab.record.token}"

    def ways(self, side: str, host: str) -> dict[str, dict[str, list[str]]]:
        """Return for each file who can send it to a host."""
        names = [one["name"] for one in self.files]
        if side == "hub":
            return {}
        if side == "star":
            first = self.hosts[0]
            way: dict[str, list[str]] = {"before": [first], "beside": []}
            return {} if host == first else dict.fromkeys(names, way)
        return upstream(host, names, self.hosts, {}, self.hosts)

    def width(self, side: str) -> dict[str, int]:
        """Return how many files a host takes at once."""
        workers, streams = width(1 if side == "star" else len(self.hosts))
        return {"workers": workers, "streams": streams}

    def request(self, side: str, host: str, packages: Path) -> dict[str, Any]:
        """Return what one host is asked for."""
        return {
            "manifest": {"revision": self.commit, "files": self.files},
            "models_dir": f"/root/models-{side}",
            "key_file": str(MOUNT / self.place.name / "key"),
            "address": self.lab.address(host),
            "addresses": {one: self.lab.address(one) for one in self.hosts},
            "port": PORT,
            "upstream": self.ways(side, host),
            "hub": self.hub,
            "site_packages": str(packages),
            "program": {path.name: path.read_text() for path in PROGRAM.glob("*.py")},
            **self.width(side),
        }

    def measure(self, side: str) -> dict[str, float]:
        """Bring the model to all hosts once; return seconds, and processor seconds in all."""
        packages = tools(self.lab)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.place, ignore_errors=True)
            shutil.copytree(REPOSITORY / "src", self.place / "src", dirs_exist_ok=True)
            shutil.copy(Path(__file__).with_name("weights_host.py"), self.place)
            (self.place / "key").write_text("k" * 32)
            processes = []
            for host in self.hosts:
                request = self.place / f"{host}.json"
                request.write_text(json.dumps(self.request(side, host, packages)))
                processes.append(self.start(host, packages, request.name))
                stack.callback(processes[-1].kill)
            for process in processes:
                said(process)
            started, busy = time.monotonic(), busy_share()
            for process in processes:
                go_on(process)
            ended = [said(process) for process in processes]
            seconds = time.monotonic() - started
            share = busy()
            for process in processes:
                go_on(process)
            used = sum(said(process)["processor_seconds"] for process in processes)
            for host in self.hosts:
                self.lab.run(host, ["rm", "-rf", f"/root/models-{side}"])
        troubles = [one for end in ended for one in end["troubles"]]
        if troubles:
            print(f"{side}: {troubles[:3]}", file=sys.stderr)
        return {
            "seconds": round(seconds, 2),
            "processor_seconds": round(used, 1),
            "busy": round(share, 2),
        }

    def start(self, host: str, packages: Path, request: str) -> subprocess.Popen[str]:
        """Start a host's part."""
        shared = MOUNT / self.place.name
        options = ssh_options(self.lab.paths.key, self.lab.paths.known_hosts)
        login = f"root@{self.lab.address(host, self.lab.record.networks[0].role)}"
        command = ["env", f"PYTHONPATH={shared}/src:{packages}", "python3"]
        command += [f"{shared}/weights_host.py", f"{shared}/{request}"]
        return subprocess.Popen(
            ["ssh", *options, login, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of a host."""
    line = cast(IO[str], process.stdout).readline()
    if not line:
        raise SystemExit("a host ended without a word; see its error above")
    return dict(json.loads(line))


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a host take its next step."""
    stream = cast(IO[str], process.stdin)
    stream.write("\n")
    stream.flush()


@contextmanager
def hub(lab: Lab, tree: Path, rate: float) -> Iterator[str]:
    """Serve the model on this machine, to the lab's hosts."""
    here = str(next(ipaddress.ip_network(lab.record.data_network.subnet).hosts()))
    emulator = REPOSITORY / "tests" / "emulators" / "hub.py"
    argv = [sys.executable, str(emulator), str(tree), "--address", here, "--rate", str(rate)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield cast(IO[str], process.stdout).readline().strip()
    finally:
        process.kill()
        process.wait()


def compare(count: int, wanted: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one number of hosts."""
    size = int(wanted.megabytes * 1e6)
    with TemporaryDirectory() as place, ExitStack() as stack:
        tree = Path(place, "tree")
        tree.mkdir()
        files = make_tree(tree, size)
        lab = stack.enter_context(Lab.create(count, "bench-weights", root=Path(place, "lab")))
        url = stack.enter_context(hub(lab, tree, wanted.outside))
        asked = json.loads(run(["curl", "-sf", f"{url}/api/models/org/model"]).stdout)
        if wanted.rate:
            for host in lab.record.hosts:
                lab.link(host.name).limit(rate=wanted.rate)
        line = Side(lab, files, url, asked["sha"])
        others = Others(lab, tree, files, f"{url}/org/model/resolve/{asked['sha']}")
        found = {
            side: (others if side in others.sides else line).measure(side) for side in wanted.sides
        }
    rates = [wanted.outside, bits(wanted.rate) / 8]
    bound = max((size / rate for rate in rates if rate), default=0.0)
    for one in found.values():
        one["of_bound"] = round(one["seconds"] / bound, 2) if bound else 0.0
    return {"hosts": count, "megabytes": wanted.megabytes, "bound": round(bound, 2), **found}


def bits(rate: str) -> float:
    """Return bits a second of a rate such as 200mbit; 0 without one."""
    units = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}
    return next((float(rate[:-4]) * unit for name, unit in units.items() if rate.endswith(name)), 0)


def main() -> int:
    """Print one line of JSON for each number of hosts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--megabytes", type=float, default=512)
    parser.add_argument("--rate", default="200mbit", help="of each host's link; empty: unshaped")
    parser.add_argument("--outside", type=float, default=25e6, help="bytes a second; 0: unbounded")
    parser.add_argument("--sides", nargs="+", default=["ours", "hub", "star"])
    wanted = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("a lab of real hosts needs root")
    for count in wanted.hosts:
        print(json.dumps(compare(count, wanted)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
