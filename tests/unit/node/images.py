"""Images of Apptainer as a person may have them, and the stand-in that runs them."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
STAND_IN = ROOT / "tests/emulators/apptainer.py"
# The engine of these images: it tells what it got, or waits for signals.
VLLM = """#!/usr/bin/env python3
import json, os, signal, sys, time
import vllm_guard
if sys.argv[1] == "wait":
    for one in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(one, lambda number, _: print(signal.Signals(number).name, flush=True))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
    print("waits", flush=True)
    while True:
        time.sleep(0.05)  # a signal just before a pause would be handled after it
print(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ), "parent": os.getppid(),
                  "sees": [one for one in sys.argv[1:] if os.path.exists(one)],
                  "guard": vllm_guard.__file__}))
sys.exit(3)
"""
MODULES = {
    "vllm/__init__.py": "__version__ = '0.32.0'",
    "vllm/platforms.py": "current_platform = object()",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/serve.py": "",
    "torch/__init__.py": "__version__ = '2.13.0'",
    "ray/__init__.py": "__version__ = '2.60.0'",
}
SITE = "opt/vllm/site"


def sandbox(place: Path) -> Path:
    """Make the directory that `apptainer build --sandbox` would; its system is the host's /usr."""
    settings = place / ".singularity.d/env/90-environment.sh"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f"export PATH=/opt/vllm/bin:$PATH PYTHONPATH=/{SITE} CUDA_HOME=${{CUDA_HOME:-/cuda}}\n"
    )
    (place / "usr").mkdir()
    for name in ("bin", "lib", "lib64"):
        (place / name).symlink_to(f"usr/{name}")
    for name, text in MODULES.items():
        path = place / SITE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, version in (("vllm", "0.32.0"), ("ray", "2.60.0"), ("torch", "2.13.0")):
        info = place / SITE / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    commands = place / "opt/vllm/bin"
    commands.mkdir()
    interpreter = str(Path(sys.executable).resolve())
    (commands / "python3").symlink_to(f"../../..{interpreter}")
    for name, text in (("vllm", VLLM), ("ray", "#!/bin/sh\nexit 4\n")):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return place


def sif(place: Path, directory: Path) -> Path:
    """Pack a sandbox into a file with the head of SIF, as the stand-in takes it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(directory, arcname=".")
    head = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + place.name.encode()
    place.write_bytes(head.ljust(65536, b"\0") + packed.getvalue())
    return place


def install(directory: Path, name: str = "apptainer") -> str:
    """Put the stand-in below its name into a directory for PATH; return that directory."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
    program.chmod(0o755)
    return str(directory)


def site_binds() -> str:
    """Return what the site's own configuration binds: that of which these images are made."""
    base = Path(sys.executable).resolve().parents[1]
    return "/usr" if base.is_relative_to("/usr") else f"/usr,{base}"
