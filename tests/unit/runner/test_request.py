from pathlib import Path

import pytest

from vllm_ansible.runner import RefusedInput, run, stream
from vllm_ansible.runner.request import check_request

from .conftest import REPOSITORY


def test_an_inventory_is_found_by_its_bare_name(checkout: Path) -> None:
    request = check_request("two", "site.yml", checkout=checkout)
    assert request.inventory == checkout / "inventories" / "two"


def test_an_inventory_that_does_not_exist_names_those_that_do(checkout: Path) -> None:
    with pytest.raises(RefusedInput) as refused:
        run("inventories/tow", checkout=checkout)
    assert str(refused.value) == (
        "inventory inventories/tow does not exist; there are: inventories/two"
    )


def test_a_stream_refuses_before_it_is_read(checkout: Path) -> None:
    with pytest.raises(RefusedInput, match=r"playbooks/failing\.yml"):
        stream("two", "playbooks/nothing.yml", checkout=checkout)


def test_a_directory_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedInput, match="not a checkout"):
        check_request("two", "site.yml", checkout=tmp_path)


def test_the_checkout_is_found_from_below(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout / "playbooks")
    assert check_request("two", "site.yml").checkout == checkout


def test_the_command_that_is_shown_keeps_values_to_itself(checkout: Path) -> None:
    request = check_request(
        "two",
        "site.yml",
        tags="prepare,serve",
        limit="gh-01",
        extra_vars={"hf_token": "hunter22"},
        check=True,
        checkout=checkout,
    )
    assert request.shown() == (
        "ansible-playbook site.yml -i inventories/two --tags prepare,serve --limit gh-01 --check "
        "-e hf_token=..."
    )


def test_until_plays_every_stage_up_to_one(checkout: Path) -> None:
    request = check_request("two", "site.yml", until="prepare", checkout=checkout)
    assert request.tags == ("prepare",)
    ours = check_request("local", "site.yml", until="weights", checkout=REPOSITORY)
    assert ours.tags == ("validate", "fill", "provision", "prepare", "install", "verify", "weights")


def test_a_stage_that_is_none_is_refused_with_those_there_are(checkout: Path) -> None:
    for until, words in (
        ("prepar", "did you mean prepare"),
        ("release", "there are prepare, serve"),
    ):
        with pytest.raises(RefusedInput, match=words):
            check_request("two", "site.yml", until=until, checkout=checkout)
    with pytest.raises(RefusedInput, match="leave out --tags"):
        check_request("two", "site.yml", until="serve", tags="serve", checkout=checkout)
