"""The README's inventory of two hosts of eight H100s, weights in a path, on two hosts of the lab.

What they show of devices is emulated: the bus and the loaded module by `gpu_host.sh`, the driver's
library by `cuda_driver.c`. The weights are sparse files with the headers of a published model.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flows.clone import Clone, Ran
from tests.unit.plan.test_readme_inventory import LLAMA_70B, readme, weights
from vllm_ansible.lab import Lab
from vllm_ansible.lab.commands import podman

pytestmark = [pytest.mark.lab, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
EMULATORS = ROOT / "tests/emulators"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
# As eight H100s of an HGX board say it of themselves; gpu_host.sh puts them on these buses.
SHOWN = {
    "DEVICES": "8",
    "NAME": '"NVIDIA H100 80GB HBM3"',
    "MEMORY": str(81559 << 20),
    "BUS": "0x10",
}
MODEL = "/data/llama"
# Neither an engine nor figures of devices: what is emulated has none.
STAGES = ("--tags", "validate,provision,prepare,weights,plan")


class GpuHosts:
    """Two hosts as the README's inventory means them, and the clone that operates them."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab, self.clone = lab, Clone(directory / "clone")

    def site(self, name: str, **engine: Any) -> Ran:
        """Run the README's inventory, whose engine has these values in place of its own."""
        hosts, variables = readme()
        text = (self.lab.inventory / "hosts.yml").read_text()
        shipped = yaml.safe_load(text.replace("{{ inventory_dir }}", str(self.lab.inventory)))
        reached = shipped["all"]["children"]["gpu"]["hosts"].values()
        named = hosts["all"]["children"]["gpu"]["hosts"]
        hosts["all"]["children"]["gpu"]["hosts"] = dict(zip(named, reached, strict=True))
        hosts["all"]["vars"] = shipped["all"]["vars"]
        (written,) = variables["engines"]
        changed = {key: value for key, value in {**written, **engine}.items() if value is not None}
        variables["engines"] = [changed]
        # A container may not lock memory without limit, whatever it is asked.
        variables["system_limits"] = "skip"
        # The lab's own, in place of the README's example.
        variables["data_plane_network"] = self.lab.record.networks[0].subnet
        directory = self.clone.directory / "inventories" / name
        (directory / "group_vars").mkdir(parents=True)
        (directory / "hosts.yml").write_text(yaml.safe_dump(hosts))
        (directory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
        return self.clone.run(directory, *STAGES)


def driver(directory: Path) -> bytes:
    """Build the emulated library of the driver for such a host."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine to make the emulated driver with")
    library = directory / "libcuda.so.1"
    told = [f"-D{name}={value}" for name, value in SHOWN.items()]
    argv = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", *told, "-o", str(library)]
    subprocess.run([*argv, str(EMULATORS / "cuda_driver.c")], check=True)
    return library.read_bytes()


@pytest.fixture(scope="module")
def hosts(
    make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuHosts]:
    root = tmp_path_factory.mktemp("gpu-hosts")
    weights(root / "data/llama", LLAMA_70B)
    files = {
        "usr/local/sbin/gpu_host.sh": (EMULATORS / "gpu_host.sh").read_bytes(),
        LIBRARY.removeprefix("/"): driver(root),
        "srv/llama.tar": subprocess.check_output(["tar", "-C", root, "-cS", "data"]),
    }
    shutil.rmtree(root / "data")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            one = tarfile.TarInfo(name)
            one.size, one.mode = len(content), 0o755
            archive.addfile(one, io.BytesIO(content))
    with make_lab(2, "gpu-hosts", root=root) as lab:
        for host in lab.record.hosts:
            podman("cp", "-", f"{host.container}:/", data=packed.getvalue())
            lab.run(host.name, ["tar", "-C", "/", "-xSf", "/srv/llama.tar"])
            lab.run(host.name, ["gpu_host.sh", "loaded", "580.95.05"])
        yield GpuHosts(lab, root)


def test_they_end_in_the_planned_layout(hosts: GpuHosts) -> None:
    """It is not kept on the head: no engine is installed that it could start."""
    ran = hosts.site("planned", model=MODEL, layout="auto", nodes=None, vllm_args={})
    before = ("validate", "provision", "prepare", "weights")
    assert [ran.stages[stage] for stage in before] == [True] * 4, ran.output
    (planned,) = ran.evidence("plan")
    assert planned["summary"] == "chat: DP2 TP8 on gpu1, gpu2 (dp, ports 20020 to 20021)"
    assert not planned["values"]["idle_devices"]
    assert "no complete environment there" in ran.failure["msg"]
    assert "(--tags install)" in ran.failure["msg"]


def test_they_end_in_one_clear_refusal(hosts: GpuHosts) -> None:
    """The controller has not the weights: what does not fit shows where they are."""
    ran = hosts.site("refused", model=MODEL, layout={"tensor": 1}, nodes=None)
    failure = ran.failure
    assert "the weights alone are 131.4" in failure["msg"]
    assert failure["fix"].startswith("write layout: ")
