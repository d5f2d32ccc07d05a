"""What transformers computes for the fixed prompts, once for each digest of weights."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from ..process import background
from ..process.family import until
from ..weights.programs import Program
from ..weights.safetensors import WeightsError
from .fingerprint import PROMPTS

LOOK_SECONDS = 0.5
PREFIX = "reference-"
# The engine that starts beside it needs the processor more. With less than this share of a machine
# that has always something else to do it would not end at all.
NICE = 5
# What would lead it to other packages than the environment's own.
FOREIGN = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")


def task_name(weights: str) -> str:
    """Return the name of the task that computes for these weights."""
    return f"{PREFIX}{weights[:12]}"


def unfit_python(python: str) -> str:
    """Return why this Python cannot compute it, empty where it can."""
    if not python:
        return "no environment is installed"
    if not os.path.exists(python):
        return f"there is no {python}"
    # That of an image is a container, to which no model is shown.
    if not os.path.exists(os.path.join(os.path.dirname(python), "../pyvenv.cfg")):
        return "the engine's Python is in an image, or in no virtual environment"
    return ""


def start(
    tasks_dir: str, one: Mapping[str, Any], python: str, script: str, user: Any, retry: bool
) -> None:
    """Start to compute, unless it runs or is done.

    retry: also where the last time had to be skipped; another environment may have what it lacks.
    """
    name = task_name(one["weights"])
    before = background.look(tasks_dir, name)
    again = retry and bool((before.get("result") or {}).get("skipped"))
    text = json.dumps([one["weights"], PROMPTS, script])
    place = str(one["place"])
    background.start(
        tasks_dir,
        name,
        lambda report: compute(python, script, place),
        user=user,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        again=again,
    )


def compute(python: str, script: str, place: str) -> dict[str, Any]:
    """Return the numbers that transformers computes for a model, or why they are `skipped`."""
    os.nice(NICE)
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    program = Program([python, "-", place, json.dumps(PROMPTS)], environment, script)
    while not program.wait(LOOK_SECONDS):
        pass
    program.judge("transformers computed no numbers", place)
    for message in program.news():
        if isinstance(message.get("result"), dict):
            return dict(message["result"])
    raise WeightsError("transformers computed no numbers", found="no result", where=place)


def stop(tasks_dir: str, check: bool = False) -> list[str]:
    """Stop every computation that runs on this host, and return the names of their tasks.

    check: only return what runs. Raises ProcessError where a process survives SIGKILL.
    """
    running = [name for name in background.names(tasks_dir) if name.startswith(PREFIX)]
    return [name for name in running if background.stop(tasks_dir, name, check)]


def found(
    tasks_dir: str, weights: str, wait_seconds: float, all_seconds: Optional[float] = None
) -> dict[str, Any]:
    """Return what a task has computed, or why there is nothing, waiting for it so long.

    all_seconds: how long was waited for it and for those before it, where these are others.
    """
    name = task_name(weights)
    until(lambda: background.look(tasks_dir, name)["state"] != "running", wait_seconds)
    status = background.look(tasks_dir, name)
    if status["state"] == "done":
        return dict(status["result"] or {"skipped": "it gave no result"})
    if status["state"] == "running":
        waited = wait_seconds if all_seconds is None else all_seconds
        return {"skipped": f"transformers still computes, after {waited:.0f} s of waiting"}
    why = status.get("message") or status["state"]
    told = (status.get("details") or {}).get("found")
    last = str(told).strip().splitlines()[-1] if told and str(told).strip() else ""
    return {"skipped": f"transformers computed nothing: {why}{': ' + last if last else ''}"}
