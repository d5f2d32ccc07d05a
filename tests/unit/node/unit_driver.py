"""Start a process as a unit of the systemd that is this user's, look at it, and end it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vllm_ansible.node import manage, process, systemd

request = json.load(sys.stdin)
stop_seconds = request.get("stop_seconds")
labels = {"cluster": "demo", "engine": "e0", "stop_timeout_seconds": 20}
files = process.Files(request["cluster_dir"], "e0-serve")


def run(command):
    """Ask the manager of this user in place of the machine's."""
    if command[0] == "systemctl":
        command = [command[0], "--user", *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


backend = systemd.Systemd("demo", request["unit_dir"], run)


def managed(state):
    return manage.manage(backend, files, process.spec(request["wanted"]), labels, state)


try:
    answer = {"started": managed("started")}
except process.ProcessError as error:
    told = run(["systemctl", "status", "--no-pager", backend.unit("e0-serve")])[1]
    told += Path(files.log).read_text()
    print(json.dumps({"error": str(error), "status": told}))
    sys.exit()
if stop_seconds is None:
    for _ in range(400):
        look = backend.look(files, process.read_json(files.record))
        if not look.running:
            break
        time.sleep(0.05)
    answer["ended"] = {"exit_status": look.exit_status, "running": look.running}
else:
    time.sleep(1)
    pid = answer["pid"] = backend.look(files, None).pid
    answer["command"] = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    main = int(run(["systemctl", "show", "-P", "MainPID", backend.unit("e0-serve")])[1])
    os.kill(main, signal.SIGUSR1)
    time.sleep(0.5)
    before = time.monotonic()
    managed("stopped")
    answer["stop_seconds"] = time.monotonic() - before
    answer["left"] = sum(
        "launcher.py" in path.read_text(errors="replace")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    )
managed("absent")
print(json.dumps(answer))
