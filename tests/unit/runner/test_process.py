from pathlib import Path

from vllm_ansible.runner.process import environment


def test_the_checkouts_settings_survive_ansible_runner(checkout: Path) -> None:
    found = environment(checkout, Path("/pointer"), {"PATH": "/bin"})
    assert found["ANSIBLE_CONFIG"] == str(checkout / "ansible.cfg")
    assert found["ANSIBLE_CALLBACK_PLUGINS"].startswith(f"{checkout}/callback_plugins:")
    assert found["ANSIBLE_CALLBACKS_ENABLED"].split(",") == ["run_record", "run_pointer"]
    assert found["PATH"].endswith(":/bin")


def test_host_keys_are_checked_although_ansible_runner_would_not(checkout: Path) -> None:
    assert environment(checkout, Path("p"), {})["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    (checkout / "ansible.cfg").write_text("")
    assert environment(checkout, Path("p"), {})["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    chosen = {"ANSIBLE_HOST_KEY_CHECKING": "False"}
    assert environment(checkout, Path("p"), chosen)["ANSIBLE_HOST_KEY_CHECKING"] == "False"
