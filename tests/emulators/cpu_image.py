"""An engine's image whose engine is vLLM on processors: stands in for a vendor's image.

In flows that are not about the engine it may be what stands in for vLLM (standin.py). The image is
real, and so are the tools that save, load and run it: the lab's Debian with vLLM's commands, and
`torch_gcu`, the stand-in for Enflame's extension. The gigabytes of Python packages are not in it.
They lie in a directory that hosts mount into each container (engine_image_mounts), read-only: an
image of 4 GB on each of several hosts of one machine would try its disk alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
import zipfile
from io import BytesIO
from pathlib import Path

from tests.emulators import standin
from vllm_ansible.environment.request import read_package
from vllm_ansible.lab.commands import podman
from vllm_ansible.node.environment import uv_command
from vllm_ansible.node.environment.wheel import wheel_bytes

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
# Beside what is locked, by what serves.
OWN = {
    "vllm": ("packages/vllm_cpu_ray", "packages/vllm_name"),
    "stand-in": ("tests/emulators/vllm",),
}
# A process of vLLM looks for its worker's answer without a pause. Where ranks share two cores, and
# wait for each other at each step, that leaves too little to those that compute.
SERVE = """\
#!/usr/bin/python3
import sys
import time
from vllm.distributed.device_communicators import shm_broadcast
from vllm.entrypoints.cli.main import main
assert shm_broadcast.sched_yield
shm_broadcast.sched_yield = lambda: time.sleep(0.001)
if __name__ == "__main__":  # vLLM spawns processes that import this file
    sys.exit(main())
"""
SERVE_STAND_IN = """\
#!/usr/bin/python3
from vllm.entrypoints.cli.main import main
main()
"""
CONTAINERFILE = """\
FROM {base}
COPY vllm /usr/bin/vllm
COPY torch_gcu.py engine.pth /usr/lib/python3/dist-packages/
ENV VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 GCU_COUNT={devices}
"""


def write_packages(directory: Path, engine: str) -> None:
    """Lay the locked engine for processors, Python 3.11, and our own packages into a directory.

    engine: `vllm`, or `stand-in`, which brings less of the lock.
    """
    links = uv_command.find_links([], os.environ)
    where = [word for link in links for word in ("--find-links", link)]
    command = [UV, "pip", "install", "--quiet", "--target", directory, "--no-deps"]
    command += ["--python-version", "3.11", "--require-hashes"]
    lock = standin.LOCK.read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock if engine == "vllm" else standin.subset(lock))
        file.flush()
        command += ["-r", file.name, *(where or ["--torch-backend", "cpu"])]
        subprocess.run(command, check=True)
    for name in OWN[engine]:
        with zipfile.ZipFile(BytesIO(wheel_bytes(read_package(ROOT / name)))) as wheel:
            wheel.extractall(directory)


def write_image(tar: Path, base: str, packages: Path, devices: int, engine: str) -> None:
    """Write the image as `docker save` does.

    base is a Debian of Python 3.11 that podman has; packages is where hosts will mount them.
    """
    name = f"localhost/vllm-ansible-test:{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as made:
        context = Path(made)
        (context / "vllm").write_text(SERVE if engine == "vllm" else SERVE_STAND_IN)
        (context / "vllm").chmod(0o755)
        shutil.copy(ROOT / "tests/emulators/torch_gcu/torch_gcu.py", context)
        (context / "engine.pth").write_text(f"{packages}\n")
        text = CONTAINERFILE.format(base=base, devices=devices)
        (context / "Containerfile").write_text(text)
        podman("build", "--quiet", "--layers=false", f"--tag={name}", str(context))
    try:
        partial = tar.with_suffix(".partial")
        podman("save", "--quiet", "--format", "docker-archive", "--output", str(partial), name)
        partial.rename(tar)
    finally:
        podman("rmi", "--force", name)
