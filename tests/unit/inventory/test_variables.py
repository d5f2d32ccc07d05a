from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.inventory.accepted import accepts
from vllm_ansible.inventory.check import Inventory, Verdict, check
from vllm_ansible.inventory.readable import readable
from vllm_ansible.inventory.specs import load_options

OPTIONS = load_options(Path(__file__).parents[3] / "roles")
ENGINE = {"name": "a", "model": "o/m"}


def judge(*hosts: dict[str, Any], selected: list[str] | None = None, **everywhere: Any) -> Verdict:
    values = {f"n{i}": {**everywhere, **host} for i, host in enumerate(hosts, 1)}
    names = list(values)
    inventory = Inventory(
        hosts=values,
        groups={"gpu": names},
        gpu=names,
        selected=names if selected is None else selected,
        connection=["ansible_host", "ansible_user", "ansible_ssh_host"],
    )
    return check(inventory, OPTIONS, accepts, lambda name, hosts: f"file of {name}")


def sentences(verdict: Verdict) -> list[str]:
    return [problem.sentence() for problem in verdict.problems]


def test_a_good_inventory_is_summed_up() -> None:
    verdict = judge({}, {}, cluster_name="r1", engines=[ENGINE, {**ENGINE, "name": "b"}])
    assert sentences(verdict) == []
    assert verdict.summary() == (
        "r1: 2 engines on 2 hosts; fit of a, b not checked: the hosts' accelerators are not known"
    )
    processors = judge({}, {}, cluster_name="r1", engines=[ENGINE], accelerator="cpu")
    assert processors.summary() == "r1: 1 engine on 2 hosts"


def test_what_a_user_calls_my_own_is_the_users() -> None:
    assert sentences(judge({"my_rack": 3, "__kept": 1, "ansible_vendor_thing": 1})) == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("cluster_nam", "cluster_name"), ("enginse", "engines"), ("ansible_hots", "ansible_host")],
)
def test_a_misspelt_name_is_told_with_the_one_that_was_meant(variable: str, meant: str) -> None:
    (told,) = sentences(judge({variable: None}))
    assert told == f"no variable is called {variable} (file of {variable}): did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("accelerator_count", "two", "a whole number"),
        ("accelerator_count", True, "a whole number"),
        ("accelerator_count", -1, "zero or more"),
        ("router_answer_seconds", -0.5, "zero or more"),
        ("router_answer_seconds", "auto", "a number"),
        ("allow_disruption", "maybe", "yes or no"),
        ("cluster_dir", "opt/x", "an absolute path"),
        ("cluster_name", "R1", "a small letter"),
        ("cluster_name", ["r1"], "a text"),
        ("data_plane_network", "10.0.0.1/24", "a network such as"),
        ("engine_python", 3.1, "a text"),
        ("engines", "a", "a list"),
        ("nfs_cache_export", "nas", "server:/path"),
        ("nfs_cache_mode", "yes", "one of auto, manage, check, skip"),
        ("nfs_cache_options", "vers=4.2, hard", "options of mount(8)"),
        ("nfs_cache_path", "/", "an absolute path"),
        ("nfs_cache_path", "/srv/shared/", "an absolute path"),
        ("nfs_cache_probe_mib", 0, "one or more"),
        ("sources_environment", "HTTPS_PROXY=x", "a mapping"),
        ("supervisor", "sysvinit", "one of auto, systemd, supervisord"),
        ("accelerator", "imagined", "one of auto, cpu, enflame, nvidia"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_what_was_expected(
    name: str, value: object, expected: str
) -> None:
    (told,) = sentences(judge({name: value}))
    assert told.startswith(f"{name} must be {expected}")
    assert f"not {value!r}" in told
    assert f"(file of {name})" in told


def test_hosts_of_a_giver_that_there_is_not_are_refused_with_those_that_there_are() -> None:
    told = sentences(judge({"provision_provider": "imagined"}))
    assert any("must be one of , aws, lambda, runpod, slurm" in one for one in told), told


def test_a_number_in_place_of_a_text_is_told_to_be_put_in_quotes() -> None:
    (told,) = sentences(judge({"engine_python": 3.1}))
    assert "write it in quotes" in told


@pytest.mark.parametrize(
    ("name", "value"),
    [("accelerator_count", "2"), ("allow_disruption", "true"), ("data_plane_network", "")],
)
def test_what_the_command_line_makes_of_a_value_is_accepted(name: str, value: str) -> None:
    assert sentences(judge({name: value})) == []


def test_hosts_that_disagree_are_named_with_both_values() -> None:
    (told,) = sentences(judge({}, {}, {"cluster_name": "r2"}, cluster_name="r1"))
    assert "it is r2 on n3, but r1 on n1, n2" in told


def test_what_may_differ_between_hosts_may() -> None:
    assert sentences(judge({"accelerator_count": 2}, {"supervisor": "supervisord"})) == []


def test_a_layout_larger_than_what_is_declared_is_refused_offline() -> None:
    engines = [{**ENGINE, "layout": {"tensor": 4}}]
    (told,) = sentences(judge({}, {}, {}, accelerator="cpu", engines=engines))
    assert "needs 4 accelerators" in told
    assert "n1 1 of 1, n2 1 of 1, n3 1 of 1" in told
    assert "(file of engines)" in told


def test_a_model_of_ours_that_does_not_exist_is_refused() -> None:
    (told,) = sentences(judge({}, engines=[{**ENGINE, "model": "package:smollm2-135m-instrct"}]))
    assert told.endswith("did you mean smollm2-135m-instruct?")


def test_what_an_inventory_does_not_declare_is_not_judged() -> None:
    assert sentences(judge({}, engines=[{**ENGINE, "layout": {"tensor": 4}}])) == []


def test_more_hosts_than_there_are_is_refused_whatever_they_have() -> None:
    (told,) = sentences(judge({}, engines=[{**ENGINE, "layout": {"pipeline": 2}, "nodes": 2}]))
    assert "2 x 1" in told


def test_a_limit_that_leaves_no_host_is_refused() -> None:
    (told,) = sentences(judge({}, {}, selected=[]))
    assert "leaves no host" in told
    # Which hosts belong together, the kept plan says, and that lies on the head.
    engines = [{**ENGINE, "layout": {"pipeline": 2}, "nodes": 2}]
    assert sentences(judge({}, {}, engines=engines, selected=["n1"])) == []


@pytest.mark.parametrize("groups", [{}, {"gpu": []}, {"gpus": ["n1"]}])
def test_without_hosts_to_serve_on_nothing_goes_on(groups: dict[str, list[str]]) -> None:
    verdict = check(Inventory({}, groups, [], []), OPTIONS, accepts, lambda *_: "")
    (told,) = sentences(verdict)
    assert "group gpu" in told


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "does not exist"),
        ("", "holds 0 words"),
        ("two words", "holds 2 words"),
        ("-hunter2", "begins with a dash, which vLLM takes for its next argument"),
        ("it'shunter2", "holds a quotation mark ('), which ends a word in the router's"),
        *((text, "is not read by YAML") for text in ("yes", "0123", "{hunter2", "&hunter2", "a:")),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused(
    tmp_path: Path, content: str | None, fault: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    verdict = judge({"vllm_api_key_file": str(file)})
    (told,) = sentences(verdict)
    assert fault in told
    assert "hunter2" not in repr(verdict.problems)


@pytest.mark.parametrize("content", ["hunter2", "123456", "sk-Ab_9.~+/=", "a-b:c", 'a%b"$c'])
def test_a_key_that_vllm_is_given_as_it_is_written_passes(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(f"{content}\n")
    assert sentences(judge({"vllm_api_key_file": str(tmp_path / "key")})) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "does not exist"),
        ("# nobody yet\n\n", "holds no key"),
        ("first\nann hunter2\n", "holds a line of several words"),
    ],
)
def test_keys_of_clients_that_the_router_cannot_read_are_refused(
    tmp_path: Path, content: str | None, fault: str
) -> None:
    file = tmp_path / "clients"
    if content is not None:
        file.write_text(content)
    verdict = judge({"router_client_keys_file": str(file)})
    (told,) = sentences(verdict)
    assert fault in told
    assert "hunter2" not in repr(verdict)
    file.write_text("# of ann\nhunter2\n\n# of bob\nhunter3\n")
    assert sentences(judge({"router_client_keys_file": str(file)})) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "does not exist"),
        ("", "holds no section"),
        ("aws_secret_access_key = hunter2", "is not written as"),
        ("[default]\nhunter2", "is not written as"),
        ("[default]\naws_session_token = a\n hunter2", "holds a value of several lines"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_and_not_quoted(
    tmp_path: Path, content: str | None, fault: str
) -> None:
    file = tmp_path / "credentials"
    if content is not None:
        file.write_text(content)
    verdict = judge({"object_storage_credentials_file": str(file)})
    (told,) = sentences(verdict)
    assert fault in told
    assert "hunter2" not in repr(verdict)
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = hunter2\n")
    assert sentences(judge({"object_storage_credentials_file": str(file)})) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("object_storage_endpoint", "minio.example:9000"),
        ("object_storage_endpoint", "https://ann:hunter2@minio.example"),
        ("object_storage_endpoint", "https://AKIA:ab/hunter2@minio.example"),
        ("object_storage_region", "eu central"),
    ],
)
def test_where_object_storage_is_must_be_an_address_without_credentials(
    name: str, value: str
) -> None:
    verdict = judge({name: value})
    (told,) = sentences(verdict)
    assert told.startswith(f"{name} must be")
    assert "hunter2" not in repr(verdict)


def test_a_model_in_object_storage_is_named_by_bucket_and_prefix_alone() -> None:
    engine = {**ENGINE, "model": "s3://models/tiny"}
    assert sentences(judge({}, engines=[engine])) == []
    (told,) = sentences(judge({}, engines=[{**engine, "model": "s3:/models/tiny"}]))
    assert "does not name a model in object storage" in told
    named = [{**engine, "model": "s3://AKIA:ab/hunter2@models/tiny"}]
    assert "hunter2" not in repr(judge({}, engines=named).problems)
    (problem,) = judge({}, engines=[{**engine, "vllm_args": {"revision": "v1"}}]).problems
    assert "has no revision" in problem.message
    assert all((problem.expected, problem.found, problem.where, problem.fix))


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def planned(directory: Path, kind: str, count: int, **more: Any) -> Verdict:
    """Judge two hosts that will have so many of a declared accelerator."""
    (directory / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    engine = {"name": "a", "model": str(directory), **more}
    values = {"accelerator": "nvidia", "accelerator_model": kind, "accelerator_count": count}
    hosts = {f"n{number}": {"engines": [engine], **values} for number in (1, 2)}
    inventory = Inventory(hosts, {"gpu": list(hosts)}, list(hosts), list(hosts))
    return check(inventory, OPTIONS, accepts, lambda name, hosts: "here", readable)


def test_declared_accelerators_are_planned_for_before_any_is_there(tmp_path: Path) -> None:
    verdict = planned(tmp_path, "H100-80", 4)
    assert sentences(verdict) == []
    assert "a: 2 x TP4: layout auto; " in verdict.summary()


def test_accelerators_that_stay_idle_are_counted_before_any_is_there(tmp_path: Path) -> None:
    verdict = planned(tmp_path, "H100-80", 8, layout={"tensor": 4})
    assert verdict.summary().endswith("; 12 of 16 accelerators stay idle")
    assert verdict.idle == {"n1": (4, 8), "n2": (8, 8)}
    (warning,) = verdict.warnings
    assert warning.startswith("12 of 16 accelerators stay idle: n1 4 of 8, n2 8 of 8; give an eng")
    all_busy = planned(tmp_path, "H100-80", 8, layout={"data": 4, "tensor": 4})
    assert "idle" not in all_busy.summary()
    assert (all_busy.idle, all_busy.warnings) == ({"n1": (0, 8), "n2": (0, 8)}, ())


def test_of_a_layout_that_nobody_planned_no_accelerator_is_called_idle(tmp_path: Path) -> None:
    """What stands in for an unknown layout is one rank."""
    unread = planned(tmp_path, "H100-80", 8, model="/data/elsewhere")
    assert "fit of a not checked" in unread.summary()
    assert (unread.idle, unread.warnings) == ({}, ())
    counted = judge({}, engines=[{**ENGINE, "layout": {"tensor": 2}}], accelerator_count=8)
    assert "6 of 8 accelerators stay idle" in counted.summary()
    uncounted = judge({}, engines=[{**ENGINE, "layout": {"tensor": 2}}])
    assert "idle" not in uncounted.summary()
    cpu = judge({}, engines=[ENGINE], accelerator="cpu", accelerator_count=8)
    assert "idle" not in cpu.summary()


def test_a_model_that_fits_nowhere_is_refused_before_any_machine_is_rented(tmp_path: Path) -> None:
    (sentence,) = sentences(planned(tmp_path, "RTX-4090", 2))
    assert "no layout is expected to run on 2x2 RTX-4090; " in sentence


def test_an_unknown_accelerator_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (sentence,) = sentences(planned(tmp_path, "H900", 2))
    assert "accelerator 'H900' is not known" in sentence


def test_what_is_built_from_source_is_refused_before_a_machine_is_touched() -> None:
    build = {"name": "vllm", "source": "https://example.com/vllm", "revision": "0" * 40}
    assert sentences(judge({}, engine_build=[build])) == []
    (told,) = sentences(judge({}, engine_build=[{**build, "revision": "v0.7.2"}]))
    assert told == (
        "engine_build vllm: revision is not a whole commit, 40 digits (file of engine_build): "
        "git ls-remote https://example.com/vllm v0.7.2."
    )
    (told,) = sentences(judge({}, engine_build="vllm"))
    assert told.startswith("engine_build must be a list")
    differ = judge({"engine_build": [build]}, {})
    assert any("must be equal on all hosts" in told for told in sentences(differ))


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (["n1"], "n1 would send the load of the benchmark and serve it"),
        (["l1", "l2"], "the load of the benchmark comes from one host"),
        (["l1"], ""),
        ([], ""),
    ],
)
def test_one_host_that_serves_nothing_may_send_the_load(load: list[str], words: str) -> None:
    hosts: dict[str, Any] = {name: {} for name in ["n1", *load]}
    inventory = Inventory(hosts, {"gpu": ["n1"], "load": load}, ["n1"], ["n1"])
    said = " ".join(sentences(check(inventory, OPTIONS, accepts, lambda *_: "")))
    assert words in said
    assert bool(words) == ("the group load" in said)
