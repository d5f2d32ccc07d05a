#!/usr/bin/python
"""Make a self-signed certificate if none is valid, and return its fingerprint."""

from __future__ import annotations

DOCUMENTATION = r"""
module: self_signed_certificate
short_description: Make a certificate that signs itself where none is valid
description:
  - Makes O(path).crt and O(path).key (P-256) where the certificate is missing or ends within
    O(renewal_days). Only the owner reads the key.
  - With O(given) nothing is made; the certificate that lies there is looked at.
author: The vllm-ansible authors
options:
  path:
    description: Both files without their ends.
    type: path
    required: true
  given:
    description: Whether it was made elsewhere.
    type: bool
    default: false
  end_entity:
    description:
      - Whether it is made as one that signs no other certificate, as programs ask of a client's.
    type: bool
    default: false
  subject:
    description: Its subject, such as V(/CN=demo).
    type: str
    required: true
  names:
    description: Its subjectAltName, such as V(DNS:demo,IP:10.0.0.1).
    type: str
    required: true
  days:
    description: How long it is valid.
    type: int
    required: true
  renewal_days:
    description: How long before its end another one is made.
    type: int
    required: true
  owner:
    description: User that reads the key.
    type: str
    required: true
  openssl:
    description: The program openssl. A given certificate needs none.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: See to the certificate
  self_signed_certificate:
    path: /opt/vllm-ansible/demo/door/tls/own
    subject: /CN=demo
    names: DNS:demo,IP:10.0.0.1
    days: 825
    renewal_days: 30
    owner: vllm
    openssl: /usr/bin/openssl
"""

RETURN = r"""
fingerprint:
  description: SHA-256 of the certificate, in pairs of digits; empty where check mode has made none.
  type: str
  returned: success
"""

import hashlib
import os
import ssl
from typing import Any

from ansible.module_utils.basic import AnsibleModule

END = "-----END CERTIFICATE-----"


def fingerprint(path: str) -> str:
    """Return the SHA-256 of the first certificate in a file; empty where there is no file."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return ""
    first = text[: text.find(END) + len(END)]
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[first.find("-----BEGIN") :])).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2)).upper()


def commands(given: dict[str, Any]) -> list[list[str]]:
    """Return what looks whether a certificate is valid for long enough, and what makes one."""
    seconds = str(int(given["renewal_days"]) * 86400)
    look = ["x509", "-in", f"{given['path']}.crt", "-noout", "-checkend", seconds]
    make = [
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", str(given["days"]), "-subj", given["subject"]),
        *("-addext", f"subjectAltName={given['names']}"),
        *(("-addext", "basicConstraints=critical,CA:FALSE") if given["end_entity"] else ()),
        *("-keyout", f"{given['path']}.key.new", "-out", f"{given['path']}.crt.new"),
    ]
    return [[given["openssl"], *look], [given["openssl"], *make]]


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "given": {"type": "bool", "default": False},
            "end_entity": {"type": "bool", "default": False},
            "subject": {"type": "str", "required": True},
            "names": {"type": "str", "required": True},
            "days": {"type": "int", "required": True},
            "renewal_days": {"type": "int", "required": True},
            "owner": {"type": "str", "required": True},
            "openssl": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    certificate, key = f"{given['path']}.crt", f"{given['path']}.key"
    look, make = commands(given)
    there = os.path.exists(certificate) and os.path.exists(key)
    changed = not given["given"] and not (there and module.run_command(look)[0] == 0)
    if changed and not module.check_mode:
        status, _, errors = module.run_command(make)
        if status:
            module.fail_json(
                msg=f"openssl has made no certificate: {errors.strip()}",
                command=" ".join(make),
                where=certificate,
            )
        module.set_mode_if_different(f"{key}.new", "0600", False)
        # Whatever root's umask is: who serves with it is another user.
        module.set_mode_if_different(f"{certificate}.new", "0644", False)
        module.set_owner_if_different(f"{key}.new", given["owner"], False)
        # The certificate last, so that a run that was interrupted begins anew.
        if os.path.exists(certificate):
            os.unlink(certificate)
        os.rename(f"{key}.new", key)
        os.rename(f"{certificate}.new", certificate)
    try:
        found = fingerprint(certificate)
    except ValueError:
        module.fail_json(
            msg=f"{certificate} holds no certificate in PEM",
            expected="a file that begins with a certificate in PEM",
            found="something else",
            where=certificate,
            fix="correct the variable that names it",
        )
    module.exit_json(changed=changed, fingerprint=found)


if __name__ == "__main__":
    main()
