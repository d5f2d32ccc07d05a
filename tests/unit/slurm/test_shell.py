from __future__ import annotations

import subprocess

import pytest

from vllm_ansible.slurm.shell import (
    comment,
    is_marked,
    lines_of_document,
    lines_of_words,
    renamed,
    variable,
    word,
)

TEXTS = [
    "",
    "plain",
    "two words",
    "it's",
    '"',
    "$HOME `date` \\ \\\\ !!",
    "a,b",
    "\n",
    "*",
    "{a,b}",
]


def shell(text: str) -> str:
    lines = f"NAME='the value'\nLIST=(zero one)\nplace=1\n{text}"
    return subprocess.run(
        ["bash", "-euc", lines], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stays_one_word(text: str) -> None:
    assert shell(f"printf '<%s>' {word(text)}") == f"<{text}>"
    marked = f"{text}{variable('NAME')}{text}{variable('LIST[place]')}x"
    assert shell(f"printf '<%s>' {word(marked)}") == f"<{text}the value{text}onex>"


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stays_what_it_is_in_a_document(text: str) -> None:
    document = lines_of_document(f"{text}{variable('NAME')}-")
    assert shell(f"cat <<END\n{document}\nEND") == f"{text}the value-\n"


def test_a_variable_followed_by_letters_keeps_its_end() -> None:
    assert word(f"{variable('NAME')}s") == '"${NAME}s"'
    assert word(f"{variable('NAME')}/s") == '"$NAME/s"'


def test_variables_get_other_names() -> None:
    text = f"NAME {variable('NAME')} {variable('LIST[1]')}"
    assert renamed(text, {"LIST[1]": "LIST[slot]"}) == text.replace("LIST[1]", "LIST[slot]")
    assert is_marked(text)
    assert not is_marked("NAME")


def test_each_option_has_a_line_with_its_value() -> None:
    words = ["vllm", "serve", "/m", "--port", "8000", "--x={}", "--headless"]
    assert lines_of_words(words) == ["vllm serve /m", "--port 8000", "'--x={}'", "--headless"]


def test_a_comment_is_one_line() -> None:
    assert comment("a\n  rm -rf x") == "a rm -rf x"
