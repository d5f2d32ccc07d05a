from __future__ import annotations

from pathlib import Path

from vllm_ansible.inventory.sources import Sources, read_sources

HOSTS = """\
all:
  vars:
    everywhere: 1
  children:
    gpu:
      vars: {of_group: 1}
      hosts:
        n1: {of_host: 1, both: 1}
"""


def places(sources: Sources, name: str, hosts: list[str], below: Path) -> list[str]:
    return [place.shown(below) for place in sources.of(name, hosts, ["all", "gpu"])]


def test_a_variable_is_found_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "group_vars/gpu").mkdir(parents=True)
    (tmp_path / "group_vars/all.yml").write_text("# a comment\nplain: 1\nboth: 1\n")
    (tmp_path / "group_vars/gpu/more.yml").write_text("deep: !vault |\n  abc\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/n1.yml").write_text("own: 1\n")
    sources = read_sources([tmp_path], None)
    found = {
        "everywhere": "hosts.yml:3",
        "of_group": "hosts.yml:6",
        "of_host": "hosts.yml:8",
        "plain": "group_vars/all.yml:2",
        "deep": "group_vars/gpu/more.yml:1",
        "own": "host_vars/n1.yml:1",
        "both": "hosts.yml:8",
    }
    assert {name: places(sources, name, ["n1"], tmp_path) for name in found} == {
        name: [place] for name, place in found.items()
    }


def test_an_ini_inventory_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[gpu]\n# n0 x=1\nn1 rack=1\n[gpu:vars]\nbase = 2\n")
    sources = read_sources([tmp_path / "hosts"], None)
    assert places(sources, "rack", ["n1"], tmp_path) == ["hosts:3"]
    assert places(sources, "base", ["n1"], tmp_path) == ["hosts:5"]
    assert places(sources, "x", ["n1"], tmp_path) == []


def test_what_ansible_can_read_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {vars: {probe: {prompt: Why?, expect: Paris}}}\n")
    sources = read_sources([tmp_path], None)
    assert places(sources, "probe", [], tmp_path) == ["hosts.yml:1"]


def test_a_file_that_is_no_yaml_is_left_to_ansible(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("a: [\n")
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    assert read_sources([tmp_path], None).places == {}
