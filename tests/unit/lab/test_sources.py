"""What hosts are told about package sources follows from what this machine was told."""

from pathlib import Path

import pytest

from vllm_ansible.lab import sources
from vllm_ansible.lab.image import parse_sources, recipe_digest

PIP = """\
:env:.find-links='/wheels'
:env:.editor='vi'
global.cert='/etc/ca.pem'
global.extra-index-url='\\nhttps://a.example/simple\\nhttps://b.example/simple'
global.find-links='/other'
install.no-index='true'
"""


def test_the_environment_wins_over_pips_files_and_lines_become_words() -> None:
    assert sources.parse_pip_config(PIP) == {
        "find-links": "/wheels",
        "cert": "/etc/ca.pem",
        "extra-index-url": "https://a.example/simple https://b.example/simple",
        "no-index": "true",
    }


def test_the_environment_wins_when_it_is_listed_last() -> None:
    text = "global.find-links='/file'\n:env:.find-links='/environment'\n"
    assert sources.parse_pip_config(text) == {"find-links": "/environment"}


def test_uv_is_told_the_same_as_pip() -> None:
    pip = {"find-links": "/a /b", "index-url": "https://i", "extra-index-url": "https://x"}
    assert sources.with_uv(pip, {}) == {
        "UV_FIND_LINKS": "/a,/b",
        "UV_DEFAULT_INDEX": "https://i",
        "UV_INDEX": "https://x",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_uv_was_told_itself_is_kept() -> None:
    told = {"UV_INDEX_URL": "https://own", "UV_FIND_LINKS": "/own", "UV_UNRELATED": "1"}
    pip = {"find-links": "/a", "index-url": "https://i"}
    assert sources.with_uv(pip, told) == {
        "UV_INDEX_URL": "https://own",
        "UV_FIND_LINKS": "/own",
    }


def test_only_directories_of_this_machine_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "index" / "simple").mkdir(parents=True)
    index = tmp_path / "index"
    assert sources.local_directory(f"file://{index}/simple") == str(index)
    assert sources.local_directory(str(index)) == str(index)
    assert sources.local_directory("https://host/simple") is None
    assert sources.local_directory(str(tmp_path / "missing")) is None


@pytest.mark.parametrize("location", ["/", "/simple", "file:///simple"])
def test_the_whole_machine_is_never_mounted(location: str) -> None:
    assert sources.local_directory(location) is None


def test_a_proxy_never_stands_between_hosts() -> None:
    found = sources.proxies({"https_proxy": "http://p:1", "NO_PROXY": "local"}, "10.1.0.0/24")
    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://p:1"
    assert found["no_proxy"] == "local,10.1.0.0/24"
    assert sources.proxies({}, "10.1.0.0/24") == {}


def test_only_debians_own_suite_becomes_a_source() -> None:
    text = "\n".join(
        [
            "Debian|http://mirror/debian/|bookworm|main",
            "Debian|http://mirror/security/|bookworm-security|main",
            "Debian|http://mirror/debian/|trixie|main",
            "Vendor|http://vendor/|bookworm|main",
            "Debian|http://mirror/debian/|bookworm|main",
            "$(ORIGIN)|http://mirror/debian/|bookworm-updates|main",
        ]
    )
    assert parse_sources(text, "bookworm") == [
        "deb http://mirror/debian/ bookworm main",
        "deb http://mirror/security/ bookworm-security main",
        "deb http://mirror/debian/ bookworm-updates main",
    ]


def test_an_image_is_named_by_every_part_of_its_recipe() -> None:
    recipes = [
        recipe_digest("bookworm", ["a"], ["b"], ["c"]),
        recipe_digest("trixie", ["a"], ["b"], ["c"]),
        recipe_digest("bookworm", ["x"], ["b"], ["c"]),
        recipe_digest("bookworm", ["a"], ["x"], ["c"]),
        recipe_digest("bookworm", ["a"], ["b"], ["x"]),
    ]
    assert len(set(recipes)) == len(recipes)
