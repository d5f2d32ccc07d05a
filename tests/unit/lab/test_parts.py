"""The parts of the lab that need neither root nor podman."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from vllm_ansible.lab import commands, leftovers, shaping
from vllm_ansible.lab.cache import BUCKETS, SharedCache, link_missing
from vllm_ansible.lab.commands import LabError
from vllm_ansible.lab.inventory import inventory_data
from vllm_ansible.lab.network import free_subnet, host_address
from vllm_ansible.lab.paths import lab_paths
from vllm_ansible.lab.process import running, start, stop
from vllm_ansible.lab.record import (
    HostRecord,
    LinkRecord,
    NetworkRecord,
    Record,
    WireRecord,
    load,
    new_record,
    save,
)

POOL = IPv4Network("10.0.0.0/22")
PORTS = {
    ("a", "data"): shaping.Port("a", "10.0.0.11", "veth1", "up1"),
    ("b", "data"): shaping.Port("b", "10.0.0.12", "veth2", "up2"),
}
ADDRESSES = {"a": "10.0.0.11", "b": "10.0.0.12"}


def small_record() -> Record:
    record = Record("lab", "0123abcd")
    record.networks = [NetworkRecord("front", "vllm-lab-0123abcd-front", "10.0.0.0/24", False)]
    record.hosts = [HostRecord("lab1", "vllm-lab-0123abcd-lab1", {"front": "10.0.0.11"})]
    return record


def test_a_subnet_overlaps_neither_smaller_nor_larger_networks() -> None:
    used = [IPv4Network("10.0.0.128/25"), IPv4Network("10.0.1.7/32")]
    assert free_subnet(used, POOL) == IPv4Network("10.0.2.0/24")
    with pytest.raises(LabError, match=r"No free /24 is left in 10\.0\.0\.0/22"):
        free_subnet([IPv4Network("10.0.0.0/8")], POOL)


def test_a_network_refuses_more_hosts_than_it_has_room_for() -> None:
    network = small_record().networks[0]
    assert host_address(network, 0) == "10.0.0.11"
    assert host_address(network, 243) == "10.0.0.254"
    with pytest.raises(LabError, match="no room for host number 245"):
        host_address(network, 244)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = small_record()
    record.links = [LinkRecord("lab1", "front", rate="1mbit")]
    record.wires = [WireRecord("veth0", "tap", start(["sleep", "60"], lambda: True, 5))]
    save(record, tmp_path / "lab.json")
    loaded = load(tmp_path / "lab.json")
    stop(record.wires[0].process)
    assert loaded == record
    assert load(tmp_path / "missing.json") is None


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text("{")
    with pytest.raises(LabError, match=r"lab\.json cannot be read"):
        load(tmp_path / "lab.json")
    (tmp_path / "lab.json").write_text('{"version": 1, "name": "lab"}')
    with pytest.raises(LabError, match=r"lab\.json is not whole: 'networks'"):
        load(tmp_path / "lab.json")


def test_two_labs_of_one_name_never_share_a_token() -> None:
    assert new_record("lab").token != new_record("lab").token


def test_a_process_is_known_by_more_than_its_number() -> None:
    process = start(["sleep", "60"], lambda: True, timeout=5)
    assert running(process)
    stranger = type(process)(process.pid, process.started + 1)
    stop(stranger)
    assert running(process), "a stranger with the same number was stopped"
    stop(process)
    assert not running(process)


def test_a_program_that_ends_early_is_quoted() -> None:
    with pytest.raises(LabError, match="cannot access"):
        start(["ls", "/nowhere"], lambda: False, timeout=120)


def test_the_inventory_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    paths = lab_paths("lab", None, tmp_path)
    data = inventory_data(small_record(), paths, {"PIP_RETRIES": "1"})["all"]
    assert data["children"] == {"gpu": {"hosts": {"lab1": {"ansible_host": "10.0.0.11"}}}}
    assert data["vars"]["sources_environment"] == {"PIP_RETRIES": "1"}
    assert str(tmp_path) not in str(data)
    key = data["vars"]["ansible_ssh_private_key_file"]
    assert key == "{{ inventory_dir }}/../../state/lab/lab/id_ed25519"


def test_two_networks_need_a_word_on_which_is_for_data(tmp_path: Path) -> None:
    record, paths = small_record(), lab_paths("lab", None, tmp_path)
    assert "data_plane_network" not in inventory_data(record, paths, {})["all"]["vars"]
    record.networks.append(NetworkRecord("data", "second", "10.0.1.0/24", True))
    chosen = inventory_data(record, paths, {})["all"]["vars"]["data_plane_network"]
    assert chosen == "10.0.1.0/24"


def test_only_the_lab_named_lab_writes_the_repositorys_inventory(tmp_path: Path) -> None:
    assert lab_paths("lab", None, tmp_path).inventory == tmp_path / "inventories" / "lab"
    other = lab_paths("other", None, tmp_path)
    assert other.inventory == other.state / "inventory"


def test_every_missing_tool_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "SEARCH_PATH", str(tmp_path))
    with pytest.raises(LabError) as refusal:
        commands.require_tools(["podman", "tc", "ip"])
    assert str(refusal.value) == (
        "The lab needs podman, tc, ip, not found on this machine; "
        "run: apt-get install iproute2 podman"
    )


def test_without_root_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    # Another user cannot read a checkout in root's home, so only the number is changed.
    code = (
        "import os, sys; os.geteuid = lambda: 1000\n"
        "from vllm_ansible.lab.__main__ import main\n"
        f"sys.argv = ['lab', 'up', '--root', {str(tmp_path)!r}]; sys.exit(main())"
    )
    source = Path(commands.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert done.returncode == 1
    assert done.stderr == (
        "lab: The lab needs root to start hosts and shape links, found uid 1000; "
        "run the same command with sudo.\n"
    )


def test_a_cache_is_shared_by_links_and_half_written_files_are_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "uv", tmp_path / "lab"
    (source / "archive-v0" / "x").mkdir(parents=True)
    (source / "wheels-v7").mkdir()
    (source / "interpreter-v5").mkdir()
    target.mkdir()
    (source / "archive-v0" / "x" / "big.so").write_text("bytes")
    (source / "archive-v0" / ".tmpabc").mkdir()
    (source / "wheels-v7" / "x-1.0").symlink_to("../archive-v0/x")
    (source / "interpreter-v5" / "this-machine").write_text("")
    assert link_missing(source, target) == 2
    assert (target / "wheels-v7" / "x-1.0" / "big.so").samefile(
        source / "archive-v0" / "x" / "big.so"
    )
    assert sorted(one.name for one in target.iterdir()) == ["archive-v0", "wheels-v7"]
    assert not (target / "archive-v0" / ".tmpabc").exists()
    assert link_missing(source, target) == 0


def test_labs_that_share_a_cache_may_fill_it_at_the_same_time(tmp_path: Path) -> None:
    source, target = tmp_path / "uv", tmp_path / "shared"
    wheel = source / f"{BUCKETS[0]}0" / "a"
    wheel.mkdir(parents=True)
    target.mkdir()
    for number in range(400):
        (wheel / str(number)).touch()
    with ThreadPoolExecutor(4) as labs:
        linked = list(labs.map(lambda _: link_missing(source, target), range(4)))
    assert sum(linked) == 400


def test_a_service_can_pass_a_cache_whose_root_a_lock_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    root = tmp_path / "lab"
    root.mkdir(mode=0o700)
    SharedCache(root).prepare()
    assert root.stat().st_mode & 0o755 == 0o755


def test_a_cut_pair_is_dropped_both_ways_and_nothing_else_is() -> None:
    script = shaping.losses("t", PORTS, [LinkRecord("a", "data", "b", cut=True)])
    assert [line for line in script.splitlines() if "drop" in line] == [
        'oifname "veth1" ip saddr 10.0.0.12 drop',
        'oifname "veth2" ip saddr 10.0.0.11 drop',
    ]


def test_without_losses_the_table_goes_away() -> None:
    script = shaping.losses("t", PORTS, [LinkRecord("a", "data", rate="1mbit")])
    assert script == "table bridge t\ndelete table bridge t\n"


def test_delays_of_a_host_and_of_a_pair_are_kept_apart() -> None:
    links = [
        LinkRecord("a", "data", delay="20ms"),
        LinkRecord("a", "data", "b", delay="500us"),
    ]
    assert shaping.delays(PORTS["a", "data"], links, ADDRESSES) == (0.02, {"10.0.0.12": 0.0005})
    assert shaping.delays(PORTS["b", "data"], links, ADDRESSES) == (0.0, {"10.0.0.11": 0.0005})


def test_a_host_without_limits_gets_no_commands() -> None:
    links = [LinkRecord("b", "data", rate="1mbit")]
    assert shaping.rates(PORTS["a", "data"], links, ADDRESSES) == []


def test_tables_and_devices_of_labs_without_a_host_are_known_by_their_token() -> None:
    tables = [
        {"family": "bridge", "name": "vllm_lab_0123abcd", "handle": 7},
        {"family": "bridge", "name": "vllm_lab_deadbeef", "handle": 8},
        {"family": "inet", "name": "vllm_lab_deadbeef", "handle": 9},
        {"family": "bridge", "name": "vllm_lab_of_somebody", "handle": 10},
        {"family": "ip", "name": "nat", "handle": 1},
    ]
    listed = {"nftables": [{"metainfo": {}}, *({"table": one} for one in tables)]}
    assert leftovers.dead_tables(listed, {"0123abcd"}) == ["vllm_lab_deadbeef"]
    assert len(leftovers.dead_tables(listed, set())) == 2
    devices = ["eth0", "vl0123ab00u", "vldeadbe10t", "vldeadbeu", "vlan10t", "veth1"]
    assert leftovers.dead_devices(devices, {"0123abcd"}) == ["vldeadbe10t"]


def test_a_network_without_a_host_may_be_of_a_lab_that_is_being_made() -> None:
    def network(token: str, created: str) -> dict[str, object]:
        labels = {"vllm-ansible.lab": token} if token else {"other": "x"}
        return {"name": f"{token}-front", "created": created, "labels": labels}

    listed = [
        network("0123abcd", "2026-11-23T10:00:00.463634785Z"),
        network("deadbeef", "2026-11-23T12:00:00.463634785+02:00"),
        network("feedbeef", "2026-11-23T11:30:00.5Z"),
        network("", "2026-11-23T10:00:00Z"),
        {"name": "podman", "created": "2026-11-23T10:00:00Z"},
    ]
    old = leftovers.made_at("2026-11-23T11:00:00Z")
    assert leftovers.dead_networks(listed, {"0123abcd"}, old) == ["deadbeef-front"]
