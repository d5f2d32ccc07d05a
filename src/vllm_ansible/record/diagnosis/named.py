"""What the words of a failing line name: options, values to choose from, and what it is about.

From these comes what to do, where an engine gives its reason in words that no signature knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache

from ..shapes import HIDDEN
from . import own_words
from .known import items

# --an-option, `an_option`, and an_option where the engine has it: no dotted path, no file.
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]+")
_WORD = re.compile(r"(?<![\w/<?&-])(?<!self\.)[a-z]+(?:_[a-z0-9]+)+(?![\w/(])")
# What stands behind the name of an option of another program.
_SET = re.compile(
    r"[`'\"]?(?: mode| flag| option)?"
    r"(?:=| ?\(-?\d| (?:must|should|cannot|can only|is (?:not|only|set)|requires?|needs|to true)\b)"
)
# Names of errors, and of attention backends, look like them.
_VARIABLE = re.compile(
    r"\b(?!\w+_ERR(?:OR)?(?:_|\b)|(?!VLLM_)\w+_(?:ATTN|MLA|SDPA)(?:_|\b))(?:VLLM|NCCL|RAY|HF|CUDA|FLASHINFER|UCX|NIXL|TORCH|TORCHINDUCTOR|TRITON|OMP|GLOO|DYN|SGLANG)"
    r"_[A-Z0-9_]{2,}\b"
)
# Values behind words that announce them: in brackets, or one after the other.
# "Supported for" is followed by where something works.
_LISTED = (
    r"(?:valid|available|supported|allowed|registered|known|possible)"
    r"(?! (?:for|by|on|with|only|when|if)\b)"
)
_CHOICES = re.compile(
    r"(?:chose from|choose from|choices? (?:are|is)"
    rf"|{_LISTED}(?: [\w-]+){{0,3}}?(?: are)?(?: in)?:?"
    r"|(?:must|should|can only) be (?:one of|either|in)|expected one of|use one of)"
    r"[: ]*[\[({] *(?P<list>[^\[\](){}]{2,600}?) *[\])}]"
    rf"|{_LISTED} (?:[\w-]+ ){{0,2}}?[\w-]+(?: are)?: (?P<bare>[\w.-]+(?:, [\w.-]+)+)",
    re.IGNORECASE,
)
# What was given in place of one of them.
_GIVEN = re.compile(
    r"(?:['\"`](?P<quoted>[\w.-]{2,40})['\"`]"
    r"|[:=] ?['\"]?(?P<plain>[\w.-]{2,40})['\"]?(?=[.,; ]|$))"
)
# What has to be given, and has not been.
_REQUIRED = re.compile(
    r"\brequires? (?P<rest>(?:(?! but | not |=| <| >)[^.;])*?"
    r"\bto be (?:set|enabled|given|passed|specified)\b)"
    r"|\bfollowing arguments are required: (?P<list>.+)"
)
# Options of a command that the words quote are not the engine's.
_COMMAND = re.compile(
    r"`(?:uv )?(?:pip3?|python3?|docker|apt|rm|ray|hf) [^`]*`|\bpip3? install (?:-\S+ )*\S+"
)
# Names of models and directories say nothing of what failed there.
_PATH = re.compile(r"(?<![\w/:~-])[~.]?/[\w./~-]*|(?<=['\"`])[\w.-]+/[\w./-]+(?=['\"`])")
_FILE = re.compile(r"\.(?:json|jinja|gguf|py|safetensors|model|bin|so)\b")
# Secrets are refused in `vllm_args` and `environment`.
_SECRETS = {
    "api_key": "vllm_api_key_file",
    "vllm_api_key": "vllm_api_key_file",
    "hf_token": "huggingface_token_file",
}
_MOST_CHOICES, _MOST_OPTIONS = 12, 3


@dataclass(frozen=True, slots=True)
class Subject:
    """What words may be about, and what to change then."""

    id: str
    pattern: re.Pattern[str]
    fix: str
    options: tuple[str, ...] = ()


@cache
def subjects() -> tuple[Subject, ...]:
    """Return all subjects; of two that words name, the first counts."""
    return tuple(
        Subject(
            one["id"],
            re.compile(_alternatives(one["regex"]), re.IGNORECASE),
            one["fix"],
            tuple(one.get("options", ())),
        )
        for one in items("subjects.yml")
    )


def _alternatives(regex: str | list[str]) -> str:
    return regex if isinstance(regex, str) else "|".join(regex)


def fix(line: str) -> str:
    """Return what to do about a line that gives its reason in its own words, or nothing."""
    words = own_words.reason(line) or own_words.innermost(line)
    advice = own_words.advice(line)
    said = [f"{advice} (as the line says)"] if advice else []
    said += [text for text in (_choose(line), _options(words) if not advice else "") if text]
    if found := subject(words):
        said.append(found.fix)
    return ". ".join(said)


def subject(words: str) -> Subject | None:
    """Return what words are about, or None."""
    words = _PATH.sub(_file, words)
    return next((one for one in subjects() if one.pattern.search(words)), None)


def _file(path: re.Match[str]) -> str:
    """Return the name of a file that has a known kind, or nothing."""
    name = path[0].rpartition("/")[2]
    return name if _FILE.search(name) else ""


def options(words: str) -> list[str]:
    """Return the options and variables of the environment that words name, in their order."""
    words = _COMMAND.sub("", words)
    found = [
        (one.start(), one[0])
        for pattern in (_FLAG, _WORD, _VARIABLE)
        for one in pattern.finditer(words)
        if pattern is not _WORD or one[0] in _engine_options() or _SET.match(words, one.end())
    ]
    found += [(one.start(), _names()[_plain(one[0])]) for one in _spoken().finditer(words)]
    first: dict[str, str] = {}
    for _, name in sorted(found):
        first.setdefault(name.lstrip("-").replace("-", "_"), name)
    return list(first.values())


@cache
def _engine_options() -> frozenset[str]:
    return frozenset(name for one in items("engine_options.yml") for name in one["options"].split())


def _plain(name: str) -> str:
    """Return the name of an option as words say it."""
    words = re.sub(r"[ _-]+", " ", name.lower()).strip()
    return re.sub(r"^(?:enable|disable) | (?:size|config)$", "", words)


@cache
def _names() -> dict[str, str]:
    return {_plain(name): name for one in subjects() for name in one.options}


@cache
def _spoken() -> re.Pattern[str]:
    """Return what finds the options that words name with spaces in place of underscores."""
    names = sorted((one for one in _names() if " " in one), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(names)})\b".replace(" ", "[ -]"), re.IGNORECASE)


def choices(line: str) -> list[str]:
    """Return the values that a line says can be chosen from."""
    found = _CHOICES.search(own_words.innermost(line))
    if not found or HIDDEN in found[0]:
        return []
    values = (one.strip(" '\"`<>") for one in (found["list"] or found["bare"]).split(","))
    return [one.split(": ")[0].strip("'\"") for one in values if one]


def _choose(line: str) -> str:
    """Return which value to give, where the line lists those that there are."""
    known = choices(line)
    if not known:
        return ""
    before = own_words.innermost(line)
    given = [one["quoted"] or one["plain"] for one in _GIVEN.finditer(before)]
    asked = [one for one in given if one not in known]
    near = next((one for name in asked if (one := _nearest(name, known))), "")
    rest = " ..." if len(known) > _MOST_CHOICES else ""
    listed = f"Give a value that the line lists: {', '.join(known[:_MOST_CHOICES])}{rest}"
    return f"{listed}; the nearest one is {near}" if near else listed


def _nearest(name: str, known: list[str]) -> str:
    """Return the value that a name is most like, or nothing where two are as near."""
    found = get_close_matches(name, known, 2, 0.7)
    near = [SequenceMatcher(None, one, name).ratio() for one in found]
    return "" if not found or near[1:] == near[:1] else found[0]


def _options(words: str) -> str:
    """Return where to change the options that words name."""
    named = options(words)[:_MOST_OPTIONS]
    asked = [one for one in named if one in _asked_for(words)]
    said = _where_set("Set", asked, " and ")
    said += _where_set("Correct or remove", [one for one in named if one not in asked], " or ")
    return ". ".join(said)


def _asked_for(words: str) -> list[str]:
    """Return the options that words require to be set."""
    found = _REQUIRED.search(words)
    return options(found["rest"] or found["list"]) if found else []


def _where_set(verb: str, names: list[str], joined: str) -> list[str]:
    """Return where to change options, or nothing where there are none."""
    places: dict[str, list[str]] = {}
    for one in names:
        places.setdefault(_place(one), []).append(one)
    said = [f"{_listed(those, joined)} {place}" for place, those in places.items()]
    return [f"{verb} {', '.join(said)}"] if said else []


def _listed(names: list[str], joined: str) -> str:
    """Return names as a sentence has them; what stands bare behind `--api-key` would be hidden."""
    names = [f"`{one}`" if one.startswith("-") else one for one in names]
    return joined.join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _place(name: str) -> str:
    """Return where an option is set."""
    if file := _SECRETS.get(name.lstrip("-").replace("-", "_").lower()):
        return f"in the file of {file}"
    if name.isupper():
        return "in the engine's `environment`"
    known = name.lstrip("-").replace("-", "_") in _engine_options()
    return "in the engine's `vllm_args`" if known else "where it is set"
