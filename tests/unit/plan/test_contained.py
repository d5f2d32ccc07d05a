"""The processes of an engine in an image: the same arguments, in a container."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.process import process
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes
from vllm_ansible.problem import PlanError

HOST = {
    **{"name": "n1", "accelerator_count": 8, "address": "10.0.0.1", "interface": "eth1"},
    **{"cluster_dir": "/opt/c", "run_dir": "/run/c", "service_user": "vllm", "cores": 64},
}
IMAGE: dict[str, Any] = {
    **{"tool": "/usr/bin/podman", "kind": "podman", "id": "abc", "user": "990:991"},
    **{"rootless": False, "init": True, "limits": ["core=0:0"], "devices": ["/dev/gcu0"]},
    **{"packages": "/e/packages", "python_path": "", "privileged": False, "mounts": []},
    "ipc": "private",
}


def planned(kind: str, **engine: Any) -> Plan:
    engines = parse_engines([{"name": "chat", "model": "o/m", **engine}])
    return make_plan("c", engines, [Capacity.whole("n1", kind, 8)])


def processes(plan: Plan, kind: str, image: Any = None) -> tuple[ProcessSpec, ...]:
    environment = {"directory": "/e", "fingerprint": "f", **({"image": image} if image else {})}
    model = {"chat": {"path": "/models/m", "experts": 256, "hidden_size": 7168}}
    hosts = {"n1": {**HOST, "accelerator": kind}}
    return wanted_processes(plan, hosts, {"n1": environment}, {"n1": model})["n1"]


def test_the_engine_gets_the_arguments_of_the_plan_and_nothing_twice() -> None:
    plan = planned("nvidia", executor="mp", layout={"tensor": 2})
    (plain,), (packed,) = processes(plan, "nvidia"), processes(plan, "nvidia", IMAGE)
    place = packed.argv.index("abc")
    assert packed.argv[place + 1 :] == plain.argv[1:]
    assert "--entrypoint=vllm" in packed.argv[:place]
    assert packed.user is None
    assert packed.cleanup == (
        *("/usr/bin/podman", "rm", "--force", "--ignore", "--time=0", "vllm-c-chat-serve"),
    )


def test_a_container_has_the_devices_of_its_ranks_and_counts_them_anew() -> None:
    plan = planned("nvidia", layout={"data": 2, "tensor": 4})
    first, second = processes(plan, "nvidia", IMAGE)
    given = [word for word in second.argv if word.startswith("--device=nvidia")]
    assert given == [f"--device=nvidia.com/gpu={number}" for number in (4, 5, 6, 7)]
    assert "--device=nvidia.com/gpu=0" in first.argv
    assert first.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert second.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert first.cleanup[-1] != second.cleanup[-1]


def test_ranks_on_enflame_say_which_devices_they_use() -> None:
    plan = planned("enflame", layout={"data": 2, "tensor": 4})
    _, second = processes(plan, "enflame", IMAGE)
    assert "--device=/dev/gcu0" in second.argv
    assert "--env=TOPS_VISIBLE_DEVICES" in second.argv
    assert second.environment["TOPS_VISIBLE_DEVICES"] == "4,5,6,7"


def test_what_steers_the_client_is_the_container_s_alone() -> None:
    (packed,) = processes(planned("cpu", executor="mp"), "cpu", IMAGE)
    assert not {"HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME"} & packed.environment.keys()
    assert "--env=HOME=/opt/c/engines/chat/cache" in packed.argv
    assert "--env=USER=vllm" in packed.argv
    assert f"--env={process.MARKER}" in packed.argv


def test_weights_and_settings_are_read_and_caches_written() -> None:
    (packed,) = processes(planned("cpu", executor="mp"), "cpu", IMAGE)
    volumes = {word for word in packed.argv if word.startswith("--volume=")}
    assert volumes == {
        "--volume=/models/m:/models/m:ro",
        "--volume=/opt/c/engines/chat:/opt/c/engines/chat:ro",
        "--volume=/e/packages:/e/packages:ro",
        "--volume=/opt/c/engines/chat/cache:/opt/c/engines/chat/cache:rw",
        "--volume=/run/c/t0:/run/c/t0:rw",
    }


def test_an_engine_on_ray_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Ray, which is not run inside images.*executor: mp"):
        processes(planned("cpu", executor="ray"), "cpu", IMAGE)


def test_processes_without_an_image_keep_the_digest_they_had() -> None:
    one = process.spec({"argv": ["/bin/true"]})
    assert process.digest(one) == "b80a2fef72df0f02"
    assert process.digest(process.spec({"argv": ["/bin/true"], "cleanup": ["x"]})) != (
        process.digest(one)
    )
