from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.batch.prompts import PromptFile
from vllm_ansible.problem import PlanError


def written(directory: Path, content: Any, name: str = "prompts.json") -> Path:
    path = directory / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def test_a_list_of_prompts(tmp_path: Path) -> None:
    path = written(tmp_path, [{"tag": "a", "prompt": "hello"}, {"tag": "b", "prompt": "you"}])
    first, second = PromptFile(path)
    assert (first.tag, first.line, second.line) == ("a", 2, 6)
    assert first.messages == [{"role": "user", "content": "hello"}]


def test_an_object_says_what_holds_for_all_wherever_it_stands(tmp_path: Path) -> None:
    content = {
        "parameters": {"temperature": 0, "max_tokens": 5},
        "prompts": [
            {"tag": "a", "prompt": "x"},
            {"tag": "b", "prompt": "x", "system": "own", "parameters": {"max_tokens": 9}},
        ],
        "system": "common",
    }
    first, second = PromptFile(written(tmp_path, content))
    assert first.messages[0] == {"role": "system", "content": "common"}
    assert second.messages[0] == {"role": "system", "content": "own"}
    assert first.parameters == {"temperature": 0, "max_tokens": 5}
    assert second.parameters == {"temperature": 0, "max_tokens": 9}


def test_the_command_line_goes_before_the_file_and_behind_the_prompt(tmp_path: Path) -> None:
    content = {
        "system": "of the file",
        "parameters": {"max_tokens": 5},
        "prompts": [{"tag": "a", "prompt": "x"}, {"tag": "b", "prompt": "x", "system": "own"}],
    }
    first, second = PromptFile(written(tmp_path, content), "given", {"max_tokens": 7})
    assert first.messages[0]["content"] == "given"
    assert second.messages[0]["content"] == "own"
    assert first.parameters == {"max_tokens": 7}


def test_files_with_question_tags_are_read_as_they_are(tmp_path: Path) -> None:
    content = {
        "system_prompt": "Be brief.",
        "user_prompts": [{"question_tag": "q1", "content": "Why?"}],
    }
    (only,) = PromptFile(written(tmp_path, content))
    assert only.tag == "q1"
    assert [one["content"] for one in only.messages] == ["Be brief.", "Why?"]


def test_messages_keep_a_system_prompt_of_their_own(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "mine"}, {"role": "user", "content": "x"}]
    (only,) = PromptFile(written(tmp_path, [{"tag": "a", "messages": messages}]), "given")
    assert only.messages == messages


def test_a_prompt_on_each_line(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"tag": "a", "prompt": "x"}\n\n{"tag": "b", "prompt": "y"}\n', "p.jsonl"
    )
    prompts = PromptFile(path)
    assert [one.line for one in prompts] == [1, 3]
    assert list(prompts.digests("m")) == ["a", "b"]


def test_the_digest_is_that_of_what_is_asked_of_which_model(tmp_path: Path) -> None:
    path = written(tmp_path, [{"tag": "a", "prompt": "x"}])
    (plain,) = PromptFile(path)
    (warm,) = PromptFile(path, parameters={"temperature": 1})
    assert len({plain.digest("m"), plain.digest("n"), warm.digest("m")}) == 3


@pytest.mark.parametrize(
    ("content", "words", "where"),
    [
        ([{"tag": "a", "prompt": "x"}, {"tag": "a", "prompt": "y"}], "have the tag 'a'", 6),
        ([{"tag": "a"}], "a prompt needs prompt or content or messages", 2),
        ([{"tag": "a", "prompt": "x", "content": "y"}], "one of them only", 2),
        ([{"prompt": "x"}], "a prompt needs tag or question_tag", 2),
        ([{"tag": 7, "prompt": "x"}], "tag is not a text", 2),
        ([{"tag": " ", "prompt": "x"}], "a tag is empty", 2),
        ([{"tag": "a", "prompt": ["x"]}], "prompt is not a text", 2),
        ([{"tag": "a", "promt": "x"}], "did you mean prompt", 2),
        ([{"tag": "a", "messages": []}], "a message is an object with a role", 2),
        ([{"tag": "a", "messages": [{"content": "x"}]}], "a message is an object with a role", 2),
        ([{"tag": "a", "prompt": "x", "parameters": {"n": 2}}], "n is not a parameter here", 2),
        ([{"tag": "a", "prompt": "x", "parameters": {"tools": []}}], "tools is not a parameter", 2),
        ([{"tag": "a", "prompt": "x", "parameters": [1]}], "parameters is not an object", 2),
        (["x"], "a prompt is an object", 2),
        ({"prompt": [], "prompts": []}, "unknown field 'prompt'", 2),
        ({"system": 5, "prompts": []}, "system is not a text", 2),
        ('[{"tag": "a",\n "prompt": "x"},\n {]', "the file cannot be parsed", 3),
    ],
)  # fmt: skip
def test_bad_input_is_one_error_with_its_line(
    tmp_path: Path, content: Any, words: str, where: int
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(PlanError) as caught:
        PromptFile(path).digests("m")
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.where == f"{path}, line {where}"
    assert problem.expected
    assert problem.found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "there is no prompt"),
        ({"system": "x"}, "no list of prompts"),
        ("", "cannot be parsed"),
    ],
)
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        PromptFile(written(tmp_path, content)).digests("m")


def test_lines_in_a_file_of_another_name_are_told_the_right_one(tmp_path: Path) -> None:
    path = written(tmp_path, '{"tag": "a", "prompt": "x"}\n{"tag": "b", "prompt": "x"}\n')
    with pytest.raises(PlanError, match=r"name the file .jsonl"):
        PromptFile(path)


@pytest.mark.parametrize("name", ["p.json", "p.jsonl"])
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match="No such file"):
        list(PromptFile(tmp_path / "absent" / name))
    path = tmp_path / name
    path.write_bytes(b"\n\xff\xfe\x00")
    with pytest.raises(PlanError) as caught:
        list(PromptFile(path))
    (problem,) = caught.value.problems
    assert "is not UTF-8" in problem.found
    assert problem.where == f"{path}, line 2"
