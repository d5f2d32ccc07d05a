"""Refuse files with secrets that cannot be used, before anything runs; quote nothing of them."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.door import clients
from vllm_ansible.inventory.variables import Where
from vllm_ansible.problem import Problem


def missing_secrets(variables: Mapping[str, Any], where: Where) -> list[Problem]:
    """Return one problem for each file with a secret that is named but cannot be used."""
    problems = []
    for name, (holds, fault_of) in SECRET_FILES.items():
        value = variables.get(name)
        if not value or not isinstance(value, str):
            continue
        path = Path(value).expanduser()
        fault = _file_fault(path) or fault_of(path.read_text(encoding="utf-8", errors="replace"))
        if fault:
            problems.append(
                Problem(
                    f"{name} names {value}, which {fault}",
                    expected=f"a file on this machine with {holds}",
                    found=f"{path}: {fault}",
                    where=where(name, []),
                    fix=f"write {holds} into {value}, mode 0600, or leave {name} out",
                )
            )
    return problems


def _file_fault(path: Path) -> str:
    """Return what keeps a file from being read."""
    if not path.exists():
        return "does not exist"
    readable = path.is_file() and os.access(path, os.R_OK)
    return "" if readable else "is not a readable file"


def _word_fault(text: str) -> str:
    """Return what keeps a text from being one secret."""
    words = text.split()
    return "" if len(words) == 1 else f"holds {len(words)} words instead of one"


def _key_fault(text: str) -> str:
    """Return what keeps a text from being a key that vLLM takes from its configuration file."""
    key = text.strip()
    if fault := _word_fault(text):
        return fault
    if key.startswith("-"):
        return "begins with a dash, which vLLM takes for its next argument"
    if "'" in key:
        return "holds a quotation mark ('), which ends a word in the router's configuration"
    try:
        read = yaml.safe_load(f"api-key: {key}")
    except yaml.YAMLError:
        read = None
    value = read.get("api-key") if isinstance(read, dict) and len(read) == 1 else None
    same = isinstance(value, (str, int)) and not isinstance(value, bool) and str(value) == key
    return "" if same else "is not read by YAML as it is written"


def _clients_fault(text: str) -> str:
    """Return what keeps a text from being keys of clients, one a line; HAProxy reads it."""
    lines = [line.split() for line in text.splitlines()]
    keys = [words for words in lines if words and not words[0].startswith("#")]
    if not keys:
        return "holds no key"
    return "" if all(len(words) == 1 for words in keys) else "holds a line of several words"


def _credentials_fault(text: str) -> str:
    """Return what keeps a text from being credentials for object storage; quotes nothing of it."""
    found = configparser.RawConfigParser()
    try:
        found.read_string(text)
    except configparser.Error:
        return "is not written as ~/.aws/credentials is"
    if any("\n" in value for one in found.sections() for value in found[one].values()):
        return "holds a value of several lines"
    return "" if found.sections() else "holds no section such as [default]"


# By the variable that names it: what a file holds, and what is wrong with another text.
SECRET_FILES = {
    "vllm_api_key_file": ("one line, the secret", _key_fault),
    "huggingface_token_file": ("one line, the secret", _word_fault),
    "benchmark_load_key_file": ("one line, the key of a client of the door", _word_fault),
    "router_client_keys_file": ("keys of clients, one a line", _clients_fault),
    "door_clients_file": ("clients, as vllm-ansible key add writes them", clients.fault),
    "object_storage_credentials_file": ("[default] and its two keys", _credentials_fault),
}
