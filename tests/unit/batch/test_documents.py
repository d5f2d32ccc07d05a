from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.batch import documents
from vllm_ansible.batch.documents import Malformed, Walk


def test_elements_come_with_the_line_they_begin_on() -> None:
    walk = Walk('[\n 1, {"a": [2,\n 3]}\n,\n\n "x"]\n')
    assert list(walk.elements()) == [(2, 1), (2, {"a": [2, 3]}), (6, "x")]
    walk.end()


def test_an_empty_list_and_an_empty_object_have_no_elements() -> None:
    assert list(Walk(" [ ]").elements()) == []
    assert list(Walk("{ }").names()) == []


def test_members_of_an_object_are_taken_one_by_one() -> None:
    walk = Walk('{"a": 1,\n"b": [5]}')
    found = [(line, name, walk.value()[1]) for line, name in walk.names()]
    assert found == [(1, "a", 1), (2, "b", [5])]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[1,\n 2", 2, "the end of the file"),
        ("[1\n2]", 2, "found 2"),
        ('[1,\n{"a": 1,\n"a": 2}]', 2, "'a' is given twice"),
        ('["a",\n\n"b]', 3, "Invalid control character|Unterminated string"),
        ("[NaN]", 1, "NaN is not JSON"),
        ("[1]\n\n2", 3, "expected the end, found 2"),
        ("[" * 100_000, 1, "recursion"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(text: str, line: int, words: str) -> None:
    walk = Walk(text)
    with pytest.raises(Malformed, match=words) as caught:
        list(walk.elements())
        walk.end()
    assert caught.value.line == line


def test_each_line_that_is_not_blank_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('\ufeff{"a": 1}\n\n{"a": 2}')
    assert list(documents.lines(path)) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": 2} 3', "expected the end"),
        (b'{"a": 2', "delimiter"),
        (b'{"a": "x\xff"}', "byte 9 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_that_is_no_json_is_told_by_its_own_number(
    tmp_path: Path, line: bytes, words: str, end: bytes
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}' + end + line + end + b'{"a": 3}' + end)
    with pytest.raises(Malformed, match=words) as caught:
        list(documents.lines(path))
    assert caught.value.line == 2
