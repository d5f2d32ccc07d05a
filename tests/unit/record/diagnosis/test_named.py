"""The options, values and subjects that a line names become what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.record.diagnosis import named, own_words, page
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.verdict import diagnose


def of(*texts: str) -> dict[str, Any]:
    return diagnose("It did not start", {"gpu1 serve": "\n".join(texts)}, {})


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--ring-size can only be set with --enable-ring", ["--ring-size", "--enable-ring"]),
        ("max_num_seqs (3) must be at most max_model_len", ["max_num_seqs", "max_model_len"]),
        ("the async scheduling of this ring", ["async_scheduling"]),
        ("set VLLM_RING_SIZE, not NCCL_RING", ["VLLM_RING_SIZE", "NCCL_RING"]),
        ("strange_option must be even", ["strange_option"]),
        # Names of its own code, paths and commands are none.
        ("self.model_config of fused_moe/layer.py", []),
        ("the strange_name of ring_7", []),
        ("it requires acme (`pip install --upgrade acme`)", []),
        ("the ray executor and max_num_seqs", ["max_num_seqs"]),
        ("https://acme/v1?api_key=ring&max_num_seqs=7 must be reached", []),
        # Errors and backends of attention are no variables, though some variables end as they do.
        ("NIXL_ERR_BACKEND, CUDA_ERROR_RING and NCCL_ERR", []),
        ("TORCH_SDPA, TRITON_MLA and TRITON_ATTN_RING", []),
        (
            "VLLM_ROCM_USE_AITER_MLA of VLLM_RING_ATTN",
            ["VLLM_ROCM_USE_AITER_MLA", "VLLM_RING_ATTN"],
        ),
    ],
)
def test_options_are_found_as_words_name_them(words: str, options: list[str]) -> None:
    assert named.options(words) == options


@pytest.mark.parametrize(
    ("line", "choices", "nearest"),
    [
        ("KeyError: 'invalid ring: acm (chose from { acme,ring })'", ["acme", "ring"], "acme"),
        (
            "ValueError: Unknown ring: 'acm'. Valid options are: ['acme', 'o']",
            ["acme", "o"],
            "acme",
        ),
        ("ValueError: ring='q' is odd. Expected one of ['acme', 'ring'].", ["acme", "ring"], ""),
        ("KeyError: \"Ring 'q' not found. Available rings: acme, ring\"", ["acme", "ring"], ""),
        ("ValueError: the ring is odd", [], ""),
        # Where it works is no value to give.
        ("ValueError: acme rings are only supported for [CUDA, ROCm]", [], ""),
        # Two are as near, none is; secrets are no values.
        (
            "KeyError: \"Ring 'acme' not found. Available rings: acme_a1, acme_b2, o\"",
            ["acme_a1", "acme_b2", "o"],
            "",
        ),
        ("ValueError: api_key must be one of ['<hidden>', '<hidden>']", [], ""),
    ],
)
def test_values_to_choose_from_are_listed_the_nearest_one_named(
    line: str, choices: list[str], nearest: str
) -> None:
    assert named.choices(line) == choices
    fix = named.fix(line)
    assert all(one in fix for one in choices)
    assert (f"the nearest one is {nearest}" in fix) if nearest else "nearest" not in fix


def test_an_option_is_changed_where_it_is_set() -> None:
    fix = named.fix("ValueError: max_num_seqs must be even where VLLM_RING_SIZE is set")
    assert "max_num_seqs in the engine's `vllm_args`" in fix
    assert "VLLM_RING_SIZE in the engine's `environment`" in fix
    assert "strange_option where it is set" in named.fix("E: strange_option must be even here")


@pytest.mark.parametrize(
    "words",
    [
        # A word of a subject that means something else here.
        "Failed to decode token 151936 of acme",
        "expected one token for each request",
        "the asyncio task could not be found",
        "the network adapter mlx5_0 must be up",
        # Names that somebody gave to directories and models.
        "/models/Acme-Image-AWQ must exist",
        "'acme/Acme-8B-GPTQ' must be given whole",
        "~/drafts/tokenizer/ must be empty",
    ],
)
def test_words_are_about_nothing_that_they_only_seem_to_name(words: str) -> None:
    assert named.subject(words) is None


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        ("/models/acme-awq/config.json must exist", "model-files"),
        ("no token was found", "hub"),
        ("awq/gptq must be given", "quantization"),
        ("this task must be another", "runner"),
    ],
)
def test_words_are_about_what_they_name(words: str, subject: str) -> None:
    found = named.subject(words)
    assert found and found.id == subject


def test_options_are_named_as_a_sentence_names_them() -> None:
    line = "ValueError: --api-key-ring, --ring-size and --acme must be even"
    assert "remove `--api-key-ring`, `--ring-size` or `--acme` where" in named.fix(line)


def test_an_option_of_a_secret_is_changed_in_its_file_and_hides_no_word_behind_it() -> None:
    answer = of("ValueError: --api-key cannot be combined with --enforce-eager")
    assert "`--api-key` in the file of vllm_api_key_file" in answer["fix"]
    assert "`--enforce-eager` in the engine's `vllm_args`" in answer["fix"]
    assert "HF_TOKEN in the file of huggingface_token_file" in named.fix("E: HF_TOKEN must be set")


@pytest.mark.parametrize("subject", named.subjects(), ids=lambda one: one.id)
def test_a_subject_says_what_to_do_in_one_sentence(subject: named.Subject) -> None:
    assert subject.fix[0].isupper()
    assert not subject.fix.endswith(".")
    assert len(subject.fix) < 260


def test_subjects_have_one_name_each_and_options_that_the_engine_has() -> None:
    ids = [one.id for one in named.subjects()]
    assert len(ids) == len(set(ids))
    listed = {name for one in named.subjects() for name in one.options}
    assert listed <= named._engine_options()


def test_a_check_of_a_configuration_gives_way_to_what_it_says() -> None:
    line = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for AcmeConfig "
        "Value error, max_num_seqs must be an even number here [type=value_error, input=()]"
    )
    assert own_words.reason(line) == "max_num_seqs must be an even number here"
    answer = of(line)
    assert "1 validation error" not in answer["cause"]
    assert "max_num_seqs in the engine's `vllm_args`" in answer["fix"]


def test_two_words_give_way_to_what_wraps_them() -> None:
    line = "RuntimeError: Failed to decode the ring of acme. Error: Invalid ring"
    assert own_words.innermost(line).startswith("Failed to decode the ring")


def test_the_words_of_a_purpose_stand_before_the_place_where_they_were_raised() -> None:
    frame = '  File "/opt/venv/lib/python3.12/site-packages/vllm/lora/acme.py", line 7, in f'
    head = "Traceback (most recent call last):"
    answer = of(head, frame, "ValueError: the ring of acme must be even")
    assert answer["signature"] == "lora-layers"
    assert 'the one that the line names: "the ring of acme must be even"' in answer["cause"]
    assert "adapter" in answer["fix"]
    # An error of the code itself has no reason to repeat.
    defect = of(head, frame, "AssertionError: ring")
    assert defect["cause"].startswith(f"{USUAL}A LoRA adapter")


def test_what_a_program_waited_for_is_named() -> None:
    answer = of("TimeoutError: Timed out waiting for the ring of acme to start. Waited 7 s")
    assert "waited for the ring of acme" in answer["cause"]
    assert answer["cause"].startswith(USUAL)


def test_an_error_that_a_program_survived_is_no_cause_of_its_end() -> None:
    reported = "ERROR 11-20 10:31:02 [serving.py:7] Failed to answer a request of acme"
    end = "ERROR 11-20 {} [core.py:9] ValueError: the ring of acme must be even"
    late, soon = end.format("10:45:00"), end.format("10:31:20")
    assert of(reported, late)["found"].startswith("ValueError")
    assert of(reported, soon)["found"].startswith("Failed to answer")
    # What ends for want of an answer may come of it.
    waited = late.replace("the ring of acme must be even", "timed out for the ring of acme")
    assert of(reported, waited)["found"].startswith("Failed to answer")


def test_what_is_only_reported_is_not_said_as_certain() -> None:
    answer = of("ERROR 11-20 10:31:02 [serving.py:7] Failed to answer a request of acme here")
    assert answer["cause"].startswith(USUAL)
    assert "after which it may have gone on" in answer["cause"]


def test_a_warning_is_no_end_however_it_begins() -> None:
    line = "{} 11-20 10:31:02 [acme.py:7] Could not load the ring of acme. Falling back to another."
    assert "cause" not in of(line.format("WARNING"), "INFO 11-20 10:31:09 [acme.py:9] done")
    assert "cause" in of(line.format("ERROR"))


def test_logs_that_only_show_what_followed_say_which_other_logs_to_bring() -> None:
    followed = "(EngineCore_DP0 pid=7) ERROR 11-20 10:31:02 [core.py:7] EngineCore failed to start."
    said = page.page(page.explain({"a": followed}))
    assert "only follows from a failure that these logs do not show" in said
    assert "worker-*.err" in said
    unknown = page.page(page.explain({"a": "AcmeError: a word that nobody reads"}))
    assert "no signature knows this line" in unknown


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (
            '"auto" choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "Set `--enable-auto-tool-choice` and `--tool-call-parser` in the engine's",
        ),
        (
            "ValueError: Cannot specify both --kv-transfer-config and --tool-call-parser",
            "Correct or remove `--kv-transfer-config` or `--tool-call-parser` in the engine's",
        ),
        (
            "ValueError: --tool-call-parser is no use, for it requires --enable-lora to be set",
            "Set `--enable-lora` in the engine's `vllm_args`. Correct or remove `--tool-call-",
        ),
    ],
)
def test_an_option_that_is_asked_for_is_to_be_set(words: str, fix: str) -> None:
    assert fix in named.fix(words)
