"""The command lines of docker and podman, word by word."""

from __future__ import annotations

from typing import Any

from vllm_ansible.node.image.command import Inside, cleanup_command, run_command
from vllm_ansible.node.image.inner import python_script

IMAGE: dict[str, Any] = {
    **{"tool": "/usr/bin/podman", "kind": "podman", "id": "abc", "user": "990:991"},
    **{"rootless": False, "init": True, "limits": ["core=0:0"], "devices": ["/dev/infiniband"]},
    **{"packages": "/e/packages", "python_path": "", "privileged": False, "mounts": ["/t.jinja"]},
    "ipc": "private",
}
DOCKER = {**IMAGE, "tool": "/usr/bin/docker", "kind": "docker"}
INSIDE = Inside(
    name="vllm-c-chat-serve",
    program="vllm",
    environment={"HOME": "/cache", "PATH": "/bin", "NOTIFY_SOCKET": "/run/n", "SECRET": "s3cret"},
    readable=("/models/m", "/models/m"),
    writable=("/cache",),
    accelerator="nvidia",
    accelerators=("4", "5"),
    shared_memory_gib=4,
)


def test_podman_gets_this_line() -> None:
    assert run_command(IMAGE, INSIDE) == [
        *("/usr/bin/podman", "run", "--rm", "--name=vllm-c-chat-serve", "--pull=never"),
        *("--network=host", "--log-driver=none", "--pids-limit=-1", "--read-only"),
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size=8g",
        *("--shm-size=4g", "--ulimit=core=0:0", "--init", "--sdnotify=ignore", "--user=990:991"),
        *("--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"),
        "--device=/dev/infiniband",
        *("--device=nvidia.com/gpu=4", "--device=nvidia.com/gpu=5"),
        *("--volume=/models/m:/models/m:ro", "--volume=/e/packages:/e/packages:ro"),
        *("--volume=/t.jinja:/t.jinja:ro", "--volume=/cache:/cache:rw"),
        *("--env=HOME=/cache", "--env=PYTHONPATH=/e/packages", "--env=SECRET"),
        *("--workdir=/", "--entrypoint=vllm", "abc"),
    ]


def test_docker_differs_in_its_name_for_devices_alone() -> None:
    ours, theirs = run_command(IMAGE, INSIDE), run_command(DOCKER, INSIDE)
    assert [word for word in theirs if word not in ours] == [
        "/usr/bin/docker",
        '--gpus="device=4,5"',
    ]
    assert {word for word in ours if word not in theirs} == {
        *("/usr/bin/podman", "--sdnotify=ignore"),
        *("--device=nvidia.com/gpu=4", "--device=nvidia.com/gpu=5"),
    }


def test_every_privilege_is_given_only_where_it_was_asked_for() -> None:
    asked = run_command({**IMAGE, "privileged": True}, INSIDE)
    assert "--privileged" in asked
    assert "--cap-drop=all" not in asked
    assert "--privileged" not in run_command(IMAGE, INSIDE)


def test_memory_files_are_the_hosts_only_where_it_was_asked_for() -> None:
    asked = run_command({**IMAGE, "ipc": "host"}, INSIDE)
    assert "--ipc=host" in asked
    # podman refuses a size for what has one already.
    assert not [word for word in asked if word.startswith("--shm-size")]
    assert "--ipc=host" not in run_command(IMAGE, INSIDE)


def test_a_value_stays_out_of_the_command_unless_it_steers_the_client() -> None:
    assert "s3cret" not in " ".join(run_command(IMAGE, INSIDE))


def test_without_root_podman_keeps_the_number_of_the_user() -> None:
    assert "--userns=keep-id" in run_command({**IMAGE, "rootless": True}, INSIDE)
    assert "--userns=keep-id" not in run_command({**DOCKER, "rootless": True}, INSIDE)


def test_the_path_of_the_image_s_own_modules_stays() -> None:
    line = run_command({**IMAGE, "python_path": "/opt/tops"}, INSIDE)
    assert "--env=PYTHONPATH=/e/packages:/opt/tops" in line


def test_a_container_is_removed_whether_it_is_there_or_not() -> None:
    assert cleanup_command(IMAGE, "a")[1:] == ["rm", "--force", "--ignore", "--time=0", "a"]
    assert cleanup_command(DOCKER, "a")[1:] == ["rm", "--force", "a"]


def test_the_image_s_python_runs_as_who_calls_it() -> None:
    script = python_script(IMAGE, "cpu", (), ("/cluster dir",))
    assert '--user="$(id -u):$(id -g)"' in script
    assert "'--volume=/cluster dir:/cluster dir:rw'" in script
    assert "--cap-add=dac_override" in script
    assert "--cap-add" not in python_script({**IMAGE, "rootless": True}, "cpu", (), ())
