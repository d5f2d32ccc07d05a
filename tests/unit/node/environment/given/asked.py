"""Ask for an environment out of a given image, make it, and have its engine tell what it got."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from vllm_ansible.environment.request import environment_request
from vllm_ansible.node.environment import build as environment

from ....fake_uv import silent
from ... import images

GUARD = images.ROOT / "packages/vllm_guard"


def wanted(directory: Path, given: Path, **more: Any) -> dict[str, Any]:
    request = environment_request(Path("none"), [GUARD], "3.11", given=str(given))
    place = environment.directory(str(directory / "cluster"), request["digest"])
    return {
        **request,
        **{"cluster_dir": str(directory / "cluster"), "directory": str(place), "uv": "/no/uv"},
        **{"requirements": f"{place}.txt", "given": str(given), "find_links": []},
        **{"torch_backend": "", "compiles": False, "compile_bytecode": True, "environment": {}},
        **more,
    }


def built(directory: Path, given: Path, **more: Any) -> Path:
    asked = wanted(directory, given, **more)
    environment.build(asked, silent)
    assert environment.look(Path(asked["directory"]), asked["digest"])["complete"]
    return Path(asked["directory"])


def told(place: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """Run the engine of the image, which ends with 3, and return what it got."""
    done = subprocess.run(
        [place / "bin/vllm", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    return dict(json.loads(done.stdout))
