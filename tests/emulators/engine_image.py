"""A small image that stands in for an engine's: this machine's Python, and a vLLM that only talks.

Its `vllm serve` reads the arguments that a real one gets, loads the middleware that they name,
answers over HTTP, and ends on SIGTERM. What runs it, podman or docker, is real.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

PACKAGES = "usr/lib/python3/dist-packages"
PYTHON = "/usr/bin/python3"
LEFT_OUT = re.compile(r"/(test|tests|idlelib|lib2to3|ensurepip|__pycache__|config-[^/]*)(/|$)")
SERVER = """\
#!/usr/bin/python3
import sys
from vllm.server import main
main(sys.argv[1:])
"""
TALKS = """\
import asyncio, importlib, json, os, signal, sys

def value(arguments, name):
    return arguments[arguments.index(name) + 1]

async def answer(scope, receive, send):
    told = {"uid": os.getuid(), "environment": dict(os.environ)}
    with open("/proc/self/status") as status:
        lines = dict(line.strip().split(":\t", 1) for line in status if ":\t" in line)
    told["capabilities"] = lines["CapEff"]
    for place in json.loads(os.environ.get("TRY_TO_WRITE", "[]")):
        try:
            open(os.path.join(place, "try"), "w").close()
            told[place] = "written"
        except OSError as error:
            told[place] = error.strerror
    body = json.dumps(told).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})

async def serve(arguments):
    module, _, name = value(arguments, "--middleware").rpartition(".")
    app = getattr(importlib.import_module(module), name)(answer)

    async def connected(reader, writer):
        first = (await reader.readline()).split()
        headers = []
        while (line := await reader.readline()).strip():
            key, _, text = line.strip().partition(b": ")
            headers.append((key.lower(), text))
        scope = {"type": "http", "method": first[0].decode(), "path": first[1].decode()}
        parts = []

        async def send(message):
            if message["type"] == "http.response.start":
                head = b"HTTP/1.1 %d x\\r\\nConnection: close\\r\\n\\r\\n"
                parts.append(head % message["status"])
            parts.append(message.get("body", b""))

        await app({**scope, "headers": headers}, None, send)
        writer.write(b"".join(parts))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(
        connected, value(arguments, "--host"), int(value(arguments, "--port")))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("serving", *arguments, flush=True)
    await ended.wait()
    server.close()
    print("ended in good order", flush=True)

def main(arguments):
    open(os.path.join(value(arguments, "serve"), "config.json")).close()
    open(value(arguments, "--config")).close()
    asyncio.run(serve(arguments))
"""
# Writes what pip would leave of a package, and fails as it does without one.
PIP = """\
import os, pathlib, sys
for line in pathlib.Path(sys.argv[-1]).read_text().split():
    name, _, version = line.partition("==")
    if name == "missing":
        sys.exit("ERROR: No matching distribution found for " + line)
    place = pathlib.Path("/usr/lib/python3/dist-packages", f"{name}-{version}.dist-info")
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
"""
FILES = {
    "usr/bin/vllm": SERVER,
    f"{PACKAGES}/torch/__init__.py": '__version__ = "2.13.0"\n',
    f"{PACKAGES}/vllm/__init__.py": '__version__ = "0.32.0"\n',
    f"{PACKAGES}/vllm/server.py": TALKS,
    f"{PACKAGES}/vllm/platforms.py": "class StandIn: pass\ncurrent_platform = StandIn()\n",
    f"{PACKAGES}/vllm/entrypoints/cli/serve.py": "",
    f"{PACKAGES}/pip/__main__.py": PIP,
}


def write_root(path: Path, more: dict[str, str] | None = None) -> None:
    """Write the root file system of the image as a tar."""
    with tarfile.open(path, "w") as archive:
        for name in ("tmp", "etc", "proc", "sys", "dev", "run", "root", "var"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for file in sorted(_python_files()):
            archive.add(os.path.realpath(file), arcname=file, recursive=False)
        for name, content in {**FILES, **(more or {})}.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))


def _python_files() -> set[str]:
    """Return the system's Python, a shell, and every library they load."""
    library = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    programs = {PYTHON, "/bin/sh"}
    modules = set()
    for folder, _, names in os.walk(library):
        if not LEFT_OUT.search(f"{folder}/"):
            modules |= {os.path.join(folder, one) for one in names if one.endswith((".py", ".so"))}
    loaded = {one for one in modules if one.endswith(".so")} | programs
    said = subprocess.run(
        ["ldd", *sorted(loaded)], capture_output=True, text=True, check=False
    ).stdout
    return {*programs, *modules, *re.findall(r"(/\S+\.so\S*) \(", said)}
