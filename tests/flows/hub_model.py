"""A hub on one lab host, and a model in it that the cluster's hosts bring to each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_ansible.lab import Lab

MODEL = "org/tiny"
DIRECTORY = "/root/hub"
PORT = 8900
EMULATOR = Path(__file__).parents[1] / "emulators" / "hub.py"
# Four shards of six MB, each with a tensor of its own, and what belongs to them.
MAKE = """
import json, pathlib, random, struct, sys
tree = pathlib.Path(sys.argv[1], "tree")
tree.mkdir(parents=True)
names = {f"w{one}": f"model-{one + 1:05}-of-00004.safetensors" for one in range(4)}
for tensor, name in names.items():
    raw = json.dumps({tensor: {"dtype": "U8", "shape": [6 << 20], "data_offsets": [0, 6 << 20]}})
    content = random.Random(tensor).randbytes(6 << 20)
    (tree / name).write_bytes(struct.pack("<Q", len(raw)) + raw.encode() + content)
(tree / "config.json").write_text("{}")
(tree / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
pathlib.Path(sys.argv[1], "hub.py").write_text(sys.argv[2])
"""
SERVE = """
import subprocess, sys
directory, *arguments = sys.argv[1:]
log = open(f"{directory}/log", "wb")
command = [sys.executable, f"{directory}/hub.py", f"{directory}/tree", *arguments]
print(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid)
"""
# A hub listens a moment after it was started.
KNOCK = """
import contextlib, socket, sys, time
for _ in range(3000):
    with contextlib.suppress(OSError):
        socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
        sys.exit()
    time.sleep(0.1)
sys.exit("nobody listens there")
"""


@contextmanager
def hub_on(lab: Lab, host: str, *arguments: str) -> Iterator[str]:
    """Serve the model from a host, and yield the hub's address."""
    lab.run(host, ["python3", "-c", MAKE, DIRECTORY, EMULATOR.read_text()])
    address = lab.address(host)
    where = ["--model", MODEL, "--address", address, "--port", str(PORT)]
    pid = lab.run(host, ["python3", "-c", SERVE, DIRECTORY, *where, *arguments]).stdout.strip()
    try:
        lab.run(host, ["python3", "-c", KNOCK, address, str(PORT)])
        yield f"http://{address}:{PORT}"
    finally:
        lab.run(host, ["kill", pid])
        lab.run(host, ["rm", "-r", DIRECTORY])


def digests(lab: Lab, host: str, directory: str) -> str:
    """Return what every file of a model contains on a host."""
    program = (
        "import hashlib, pathlib, sys\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    if path.is_file():\n"
        "        print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())\n"
    )
    return lab.run(host, ["python3", "-c", program, directory]).stdout
