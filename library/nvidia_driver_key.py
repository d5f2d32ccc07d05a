#!/usr/bin/python
"""Keep the key of a package repository, after proving that it is the one that was named."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_key
short_description: Keep the key of a package repository, after proving that it is the one named
description:
  - Fetches an OpenPGP key and writes it only if every key in the file has the fingerprint that was
    given. Needs no gpg. A file that already holds that key is left alone, and nothing is fetched.
author: The vllm-ansible authors
options:
  url:
    description: Where the key is fetched from.
    type: str
    required: true
  path:
    description: Where it is kept, mode 0644. Its directory must exist.
    type: path
    required: true
  fingerprint:
    description: The 40 hexadecimal digits of the key's fingerprint; blanks do not matter.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Trust the key of the repository
  nvidia_driver_key:
    url: https://mirror.example/cuda/debian12/x86_64/3bf863cc.pub
    path: /etc/apt/keyrings/vllm-ansible-nvidia.asc
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
"""

RETURN = r"""
fingerprint:
  description: The fingerprint of the key that is kept.
  type: str
  returned: success
"""

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url
from ansible.module_utils.vllm_ansible.node.drivers.key import KeyFileError, fingerprints


def main() -> None:
    """Look, fetch, prove, keep."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    url, path = module.params["url"], Path(module.params["path"])
    wanted = "".join(module.params["fingerprint"].split()).upper()

    if kept(path) == [wanted]:
        module.exit_json(changed=False, fingerprint=wanted)

    answer, information = fetch_url(module, url, timeout=30)
    if answer is None or information["status"] not in (200, -1, None):
        module.fail_json(
            msg=f"the key of the repository cannot be fetched: {information['msg']}",
            expected="an OpenPGP key",
            found=information["msg"],
            where=url,
            fix="correct nvidia_driver_key_url, or give the host a way there: sources_environment",
        )
    data = answer.read()
    try:
        found = fingerprints(data)
    except KeyFileError as error:
        found = [str(error)]
    if found != [wanted]:
        module.fail_json(
            msg=f"the key at {url} is not the one that was named; it was not kept",
            expected=wanted,
            found=", ".join(found),
            where=url,
            fix="find out who serves that file; a new key of the vendor is named by "
            "nvidia_driver_key_fingerprint",
        )
    if not module.check_mode:
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        module.atomic_move(temporary, str(path))
        path.chmod(0o644)
    module.exit_json(changed=True, fingerprint=wanted)


def kept(path: Path) -> list[str]:
    """Return the fingerprints in a file; none where it holds no key."""
    try:
        found: list[str] = fingerprints(path.read_bytes())
    except (OSError, KeyFileError):
        return []
    return found


if __name__ == "__main__":
    main()
