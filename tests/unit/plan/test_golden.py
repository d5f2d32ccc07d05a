"""What the shipped inventories run, to the byte: a change of it restarts engines that serve.

A change that is meant: `python tests/unit/plan/test_golden.py` writes the files anew, and the
CHANGELOG says which engines restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.process_spec import ProcessSpec
from vllm_ansible.plan.processes import wanted_processes

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "tests/data/golden"
CONFIG = ROOT / "tests/data/public/configs/deepseek-ai--DeepSeek-R1_config.json"
R1 = {"path": "/models/DeepSeek-R1", "fingerprint": "w", "experts": 256, "hidden_size": 7168}
IMAGE = {
    **{"tool": "/usr/bin/podman", "kind": "podman", "id": "abc", "user": "990:991"},
    **{"rootless": False, "init": True, "limits": ["core=0:0"], "devices": ["/dev/gcu0"]},
    **{"packages": "/e/packages", "python_path": "", "privileged": False, "mounts": []},
    "ipc": "host",
}


@dataclass(frozen=True)
class Site:
    """Hosts of one kind, and what they are asked to serve."""

    hosts: int
    count: int
    kind: str = "cpu"
    device: str = ""
    # Of a shipped inventory; engines of a layout that none of them has are given.
    inventory: str = ""
    engines: tuple[Mapping[str, Any], ...] = ()
    image: Mapping[str, Any] = field(default_factory=dict)
    # Whether what is served is R1 as it was published.
    published: bool = True

    def asked(self) -> list[dict[str, Any]]:
        """Return the engines as they are written down."""
        found: list[dict[str, Any]] = [dict(one) for one in self.engines]
        for file in sorted((ROOT / "inventories" / self.inventory / "group_vars").rglob("*.yml")):
            found = (yaml.safe_load(file.read_text()) or {}).get("engines", found)
        return found


TWO = {"model": "org/r1", "name": "r1"}
SITES = {
    "local": Site(1, 1, inventory="local"),
    "lab": Site(3, 2, inventory="lab"),
    "aws": Site(2, 8, "nvidia", "H100-80", "aws"),
    "lambda": Site(16, 1, "nvidia", "GH200", "lambda"),
    "runpod": Site(2, 8, "nvidia", "H200", "runpod"),
    "slurm": Site(4, 4, "nvidia", "H100-80", "slurm"),
    "enflame": Site(4, 8, "enflame", "S60", "enflame", image=IMAGE, published=False),
    "h200": Site(2, 8, "nvidia", "H200", engines=(TWO,)),
    "without-ray": Site(2, 8, "nvidia", "H200", engines=(
        {**TWO, "executor": "mp", "layout": {"tensor": 8, "pipeline": 2}},
    )),
    "data-ranks": Site(2, 8, "nvidia", "H200", engines=(
        {**TWO, "layout": {"data": 16, "tensor": 1}},
    )),
    "two-engines": Site(2, 8, "nvidia", "H200", engines=(
        {**TWO, "nodes": 1, "environment": {"NCCL_DEBUG": "WARN"}},
        {**TWO, "name": "other", "nodes": 1, "vllm_args": {"max_model_len": 4096}},
    )),
}  # fmt: skip


def host(site: Site, number: int) -> dict[str, Any]:
    return {
        "name": f"n{number:02}",
        "accelerator": site.kind,
        "accelerator_count": site.count,
        "address": f"10.0.0.{number}",
        "interface": "eth1",
        "cluster_dir": "/opt/vllm-ansible/c",
        "run_dir": "/run/vllm-c",
        "service_user": "vllm",
        "cores": 16,
    }


def planned(site: Site, kept: Plan | None = None) -> Plan:
    engines = parse_engines(site.asked())
    device = accelerator(site.device) if site.device else None
    hosts = [host(site, number)["name"] for number in range(1, site.hosts + 1)]
    capacities = [Capacity.whole(name, site.kind, site.count, device) for name in hosts]
    known = understand(Settings(json.loads(CONFIG.read_text()), CONFIG.name), "DeepSeek-R1")
    models = {engine.name: known for engine in engines} if device and site.published else {}
    return make_plan("c", engines, capacities, kept, terms=Terms(models))


def golden(site: Site) -> dict[str, Any]:
    """Return plan and processes as far as an engine that runs is held against them.

    Of the first host and the last everything is written out, of the others the digests.
    """
    plan, wanted = planned(site), wanted_of(site)
    whole = (min(wanted), max(wanted))
    return {
        "plan": plan.digest,
        "engines": {
            engine.name: {
                "layout": engine.layout.name,
                "executor": engine.executor,
                "ranks": [f"{rank.host}:{rank.device}" for rank in engine.ranks],
            }
            for engine in plan.engines
        },
        "processes": {
            name: [spec.to_dict() if name in whole else spec.digest for spec in specs]
            for name, specs in wanted.items()
        },
    }


def wanted_of(site: Site) -> dict[str, tuple[ProcessSpec, ...]]:
    plan = planned(site)
    hosts = {one["name"]: one for one in (host(site, n) for n in range(1, site.hosts + 1))}
    environment = {
        "directory": "/opt/vllm-ansible/environments/e",
        "fingerprint": "e",
        "versions": {"vllm": "0.9.2" if site.kind == "enflame" else "0.32.0"},
        **({"image": dict(site.image)} if site.image else {}),
    }
    models = {engine.name: R1 for engine in plan.engines}
    return wanted_processes(
        plan, hosts, dict.fromkeys(hosts, environment), dict.fromkeys(hosts, models)
    )


def written(site: Site) -> str:
    return json.dumps(golden(site), indent=1, sort_keys=True) + "\n"


def specs_of(site: Site) -> list[ProcessSpec]:
    """Return the processes of the first host and the last."""
    wanted = wanted_of(site)
    return [spec for host in sorted({min(wanted), max(wanted)}) for spec in wanted[host]]


def test_a_path_of_the_users_own_is_no_addition_of_a_release() -> None:
    """It ends with what a release adds, and without it something else is found."""
    own = {"PATH": "/opt/mine/bin:/usr/local/cuda/bin", "RAY_USAGE_STATS_REPORT_URL": "none:"}
    asked = {**TWO, "nodes": 1, "executor": "mp", "environment": own}
    (spec,) = specs_of(Site(1, 8, "nvidia", "H200", engines=(asked,)))
    assert spec.environment["PATH"] == own["PATH"]
    for name, value in (("PATH", "/opt/mine/bin"), ("RAY_USAGE_STATS_REPORT_URL", None)):
        changed = {one: text for one, text in spec.environment.items() if one != name}
        changed |= {name: value} if value else {}
        assert not spec.runs_as(replace(spec, environment=changed).digest), name


@pytest.mark.parametrize("name", SITES)
def test_what_a_release_of_before_started_goes_on(name: str) -> None:
    """As 22af16e recorded it: without what Ray's reports go to, and without CUDA's compilers."""
    for spec in specs_of(SITES[name]):
        before = dict(spec.environment)
        before.pop("RAY_USAGE_STATS_REPORT_URL", None)
        # An engine in an image has its own.
        if "PATH" in before:
            before["PATH"] = before["PATH"].removesuffix(":/usr/local/cuda/bin")
        recorded = replace(spec, environment=before).digest
        assert spec.runs_as(recorded)
        assert spec.runs_as(spec.digest)
        before.pop("VLLM_HOST_IP")
        assert not spec.runs_as(replace(spec, environment=before).digest)
        # A newer release that takes something away is another matter.
        assert not replace(spec, environment=before).runs_as(recorded)


@pytest.mark.parametrize("name", SITES)
def test_what_runs_is_what_ran(name: str) -> None:
    kept = json.loads((KEPT / f"{name}.json").read_text())
    assert json.loads(written(SITES[name])) == kept


def test_an_engine_that_an_earlier_release_planned_stays_where_it_is() -> None:
    # Before the default question had its answer, and before replicas were a choice of `auto`.
    earlier = Plan.from_dict(json.loads((KEPT / "earlier/slurm.json").read_text()))
    (before,), (now,) = earlier.engines, planned(SITES["slurm"], earlier).engines
    assert (now.layout, now.ranks, now.arguments) == (before.layout, before.ranks, before.arguments)
    assert (before.probe.expect, now.probe.expect) == ("", "Paris")


def test_every_shipped_inventory_and_no_other_is_kept() -> None:
    shipped = {one.name for one in (ROOT / "inventories").iterdir() if one.is_dir()}
    assert shipped == {site.inventory for site in SITES.values() if site.inventory}
    assert {one.stem for one in KEPT.glob("*.json")} == set(SITES)


if __name__ == "__main__":
    for name, site in SITES.items():
        (KEPT / f"{name}.json").write_text(written(site))
