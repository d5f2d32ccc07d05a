"""The real engine, in an environment that somebody else has made, with our packages over it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vllm_ansible.environment.request import environment_request
from vllm_ansible.node.environment import build as environment

ROOT = Path(__file__).parents[2]


def test_vllm_and_ray_run_from_an_environment_that_is_given(
    engine: Path, engine_uv: str, tmp_path: Path
) -> None:
    packages = [ROOT / "packages/vllm_cpu_ray", ROOT / "packages/vllm_guard"]
    request = environment_request(Path("none"), packages, "3.11", given=str(engine))
    place = environment.directory(str(tmp_path), request["digest"])
    wanted = {
        **request,
        **{"cluster_dir": str(tmp_path), "directory": str(place), "given": str(engine)},
        **{"uv": engine_uv, "requirements": "none", "find_links": [], "torch_backend": "cpu"},
        **{"compiles": False, "compile_bytecode": True, "environment": {}},
    }
    manifest = environment.build(wanted, lambda *_, **__: None)
    theirs = environment.distributions(engine)
    assert manifest["distributions"].items() >= theirs.items()
    assert manifest["distributions"].keys() - theirs.keys() == {"vllm-guard"}
    # Our platform, which Ray's engines on processors need, is found by its entry point.
    assert manifest["versions"]["platform"] == "CpuRayPlatform"
    said = subprocess.run(
        [place / "bin/ray", "--version"], capture_output=True, text=True, check=True
    )
    assert manifest["versions"]["ray"] in said.stdout
