"""`weights_rehash` in the role itself, for models that do not come from outside."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tests.ports import port_base
from vllm_ansible.node.weights import models
from vllm_ansible.node.weights.models import Model

ROOT = Path(__file__).parents[3]
RAW = b'{"a": {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}'
LARGE = models.WHOLE_WHEN_FOUND + 1


def write(place: Path, size: int, last: bytes = b"\0") -> None:
    """Make a model of one tensor; last: what its last byte is."""
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    raw = RAW.replace(b"SIZE", str(size).encode())
    header = struct.pack("<Q", len(raw)) + raw
    (place / "model.safetensors").write_bytes(header + bytes(size - 1) + last)


def test_models_that_were_made_or_named_are_proven_again_and_compared(
    play: Any, tmp_path: Path
) -> None:
    """The message for copies that differ recommends it: it ended in `'' cannot name a task`."""
    hosts = {}
    for name, last in {"h1": b"\0", "h2": b"\1"}.items():
        cluster = tmp_path / name
        made = Model("random", "llama")
        models_dir = str(cluster / "models")
        place = made.place(models_dir)
        write(Path(place), 64)
        models.write_record(made, models_dir, models.make_record(made, place, place))
        mine = cluster / "mine"
        write(mine, LARGE, last)
        site = {"cluster_dir": str(cluster), "models_dir": models_dir, "privileges": "none"}
        site |= {"name": name, "address": "127.0.0.1"}
        hosts[name] = {
            "site_host": site,
            "mine": [{"name": "mine", "model": str(mine)}],
            "made": [{"name": "made", "model": "random:llama"}],
        }
    shared = {"name": "weights", "rolespec_validate": False}
    again = {
        "weights_rehash": "true",
        "object_storage_endpoint": "",
        "object_storage_region": "",
        "sources_environment": {},
        "site_object_storage_file": "",
        "port_base": port_base(),
        "site_hosts": [host["site_host"] for host in hosts.values()],
    }

    def role(engines: str, **more: Any) -> dict[str, Any]:
        variables = {**again, "engines": f"{{{{ {engines} }}}}", **more}
        return {"name": engines, "ansible.builtin.include_role": shared, "vars": variables}

    waited = {"name": "waited", "ansible.builtin.debug": {"var": "__weights_fetched"}}
    played = play(
        [role("made"), waited, role("mine")], hosts, {"ANSIBLE_ROLES_PATH": str(ROOT / "roles")}
    )
    # Nothing is to be fetched: they are as they were made.
    waits = [one["__weights_fetched"] for one in played.tasks["waited"].values()]
    assert [one.get("skipped") for one in waits] == [True, True]
    # Blocks of a tensor do not show its last byte; the whole files, waited for, do.
    gate = played.tasks["weights : Check that every host has the same models"]["h1"]
    assert gate["msg"] == "the model of engine mine is not the same on all its hosts"
    assert gate["where"] == f"h2: {tmp_path / 'h2' / 'mine'}"
    assert gate["found"].endswith("model.safetensors holds something else")
