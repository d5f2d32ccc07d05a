"""A compiled package whose build needs a compiler and nothing else: its backend is its own."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

EMULATOR = Path(__file__).parents[2] / "emulators/compiled_project.py"
# setuptools would have to come from a package index; this does what it does, for one file of C.
# No two builds are the same to the byte, as with real compilers: times in a zip are of two seconds,
# in which a quick machine builds twice.
BACKEND = """
import os, subprocess, sys, sysconfig, time, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    print("settings", config_settings, "jobs", os.environ.get("MAX_JOBS"), flush=True)
    while os.environ.get("WAIT_FOR") and not os.path.exists(os.environ["WAIT_FOR"]):
        print("[1/3] waiting", flush=True)
        time.sleep(0.2)
    module = "vllm_ansible_answer" + sysconfig.get_config_var("EXT_SUFFIX")
    compile = ["cc", "-shared", "-fPIC", "-I" + sysconfig.get_path("include"), "answer.c"]
    if subprocess.call([*compile, "-o", module]):
        raise SystemExit("error: the compiler failed")
    tag = "cp{0}{1}-cp{0}{1}-linux_{2}".format(*sys.version_info[:2], os.uname().machine)
    folder = f"{NAME}-{VERSION}.dist-info"
    with zipfile.ZipFile(os.path.join(directory, f"{NAME}-{VERSION}-{tag}.whl"), "w") as wheel:
        wheel.write(module)
        wheel.writestr(f"{folder}/METADATA",
                       f"Metadata-Version: 2.1\\nName: {NAME}\\nVersion: {VERSION}\\n"
                       f"Summary: build {os.urandom(8).hex()}\\n")
        wheel.writestr(f"{folder}/WHEEL", f"Wheel-Version: 1.0\\nTag: {tag}\\n")
        wheel.writestr(f"{folder}/RECORD", "")
    return f"{NAME}-{VERSION}-{tag}.whl"
"""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def emulator() -> Any:
    """Return the program that writes such packages with setuptools for their backend."""
    spec = spec_from_file_location("compiled_project", EMULATOR)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(repository: Path, version: str = "1.0", answer: str = "42") -> str:
    """Commit the package to a repository and return the commit."""
    program = emulator()
    constants = f'NAME, VERSION = "vllm_ansible_answer", "{version}"\n'
    files = {**program.project(version, answer), "pyproject.toml": PROJECT}
    found: str = program.commit(repository, {**files, "backend.py": constants + BACKEND})
    return found
