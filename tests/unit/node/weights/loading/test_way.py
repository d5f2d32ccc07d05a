"""How vLLM 0.32 reads files of a model, by where they lie and by its arguments."""

from __future__ import annotations

import json

import pytest

from vllm_ansible.node.weights.loading.way import (
    AHEAD,
    MAPPED,
    NOTHING,
    UNKNOWN,
    WHOLE,
    given,
    readers_of,
    way_of,
)

GIB = 1 << 30
THREADED = json.dumps({"enable_multithread_load": True})


@pytest.mark.parametrize(
    ("kind", "size", "words", "expected"),
    [
        ("ext4", 10, [], MAPPED),
        ("nfs4", 10, [], AHEAD),
        ("lustre", 90, [], AHEAD),
        ("nfs4", 91, [], MAPPED),
        ("wekafs", 10, [], MAPPED),
        ("gpfs", 10, ["--safetensors-load-strategy", "prefetch"], AHEAD),
        ("gpfs", 10, ["--safetensors_load_strategy=prefetch"], AHEAD),
        ("nfs", 10, ["--safetensors-load-strategy", "lazy"], MAPPED),
        ("nfs", 10, ["--safetensors-load-strategy=eager"], WHOLE),
        ("nfs", 10, ["--safetensors-load-strategy", "torchao"], UNKNOWN),
        ("nfs", 10, ["--model-loader-extra-config", THREADED], MAPPED),
        ("nfs", 10, ["--model-loader-extra-config", "{"], AHEAD),
        ("nfs", 10, ["--load-format", "safetensors"], AHEAD),
        ("nfs", 10, ["--load-format", "runai_streamer"], UNKNOWN),
        ("nfs", 10, ["--load-format", "dummy"], NOTHING),
    ],
)
def test_files_are_read_as_storage_memory_and_arguments_have_it(
    kind: str, size: int, words: list[str], expected: str
) -> None:
    assert way_of(kind, size * GIB, 100 * GIB, words) == expected


def test_each_rank_reads_ahead_with_its_threads_and_one_reads_for_all_that_map() -> None:
    assert readers_of(AHEAD, 4, []) == 32
    assert readers_of(AHEAD, 2, ["--safetensors-prefetch-num-threads", "3"]) == 6
    assert readers_of(MAPPED, 8, []) == 1
    assert readers_of(AHEAD, 0, []) == 8


def test_the_last_value_that_is_given_counts() -> None:
    assert given(["--load-format", "pt", "--load_format=auto"], "load_format") == "auto"
    assert given(["--load-format"], "load_format") == ""
    assert given([], "load_format") is None
