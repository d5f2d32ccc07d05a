"""What a model says is shown by a terminal, and obeyed by none."""

from __future__ import annotations

import io
import sys

import pytest

from vllm_ansible.batch import asking
from vllm_ansible.cli.live_view import LiveView

HOSTILE = "a\x1b]0;owned\x07b"


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "shown"), [(Terminal, "a\\x1b]0;owned\\x07b"), (io.StringIO, HOSTILE)]
)
def test_an_answer_steers_no_terminal_and_reaches_a_file_as_it_is(
    stream: type[io.StringIO], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, errors = stream(), stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    asking._show(HOSTILE, HOSTILE)
    assert out.getvalue() == errors.getvalue() == shown


def test_a_run_that_is_watched_steers_no_terminal() -> None:
    out = Terminal()
    LiveView(out)._print([HOSTILE])
    assert "\x1b]" not in out.getvalue() and "\x07" not in out.getvalue()
    assert "a\\x1b]0;owned" in out.getvalue()
