"""A refusal that says what was expected, what was found, where, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from vllm_ansible.frozen import frozen


@frozen
class Problem:
    """One thing that is wrong, told as one sentence."""

    message: str
    expected: str = ""
    found: str = ""
    where: str = ""
    fix: str = ""

    def sentence(self) -> str:
        """Return the message, where it is, and the fix."""
        where = f" ({self.where})" if self.where else ""
        told = f"{self.message}{where}{f': {self.fix}' if self.fix else ''}"
        return told if told.endswith("?") else f"{told}."


class PlanError(ValueError):
    """The request cannot be met; every reason is in `problems`."""

    def __init__(self, problems: Sequence[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(" ".join(problem.sentence() for problem in self.problems))


def as_result(problems: Sequence[Problem]) -> dict[str, object]:
    """Return what a failing action hands to Ansible: all sentences, and the parts of a lone one."""
    sentences = [problem.sentence() for problem in problems]
    if len(sentences) == 1:
        parts = {name: text for name, text in asdict(problems[0]).items() if text}
        return {**parts, "msg": sentences[0], "problems": sentences}
    numbered = [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]
    return {"msg": "\n".join(numbered), "problems": sentences}


def close_match(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known word that looks most like this one, or nothing."""
    from difflib import get_close_matches  # only a refusal needs it

    matches = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {matches[0]}?" if matches else ""
