#!/usr/bin/python
"""Look once at what mounting by NFS with a cache needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_cache_info
short_description: Look once at what mounting by NFS with a cache needs
description:
  - Reports what the kernel can, what is mounted, what fstab says, and the disk under the cache.
  - Lets the kernel load its modules for it, as mounting would; in check mode it only looks for
    them. Changes nothing else.
author: The vllm-ansible authors
options:
  path:
    description: Where the directory is, or is to be, mounted; an absolute path.
    type: str
    required: true
  cache:
    description: Directory of the cache. Empty for none.
    type: str
    default: ''
  serves:
    description: Whether this host is the server.
    type: bool
    default: false
  fstab:
    description: The file of what is mounted at boot.
    type: path
    default: /etc/fstab
"""

EXAMPLES = r"""
- name: Look at the mount and its cache
  nfs_cache_info:
    path: /srv/shared
    cache: /var/cache/fscache
  register: __nfs_cache_look
"""

RETURN = r"""
look:
  description:
    - C(nfs), C(nfsd) and C(cache) are empty, or why the kernel cannot; C(mount) and C(fstab) have
      C(source), C(kind) and C(options), or are null; C(place) describes the directory itself,
      C(caches) has the tags of active caches, C(bound) of those that hold what is mounted,
      C(users) who uses it, C(room) the disk under the cache in bytes.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.nfs.look import look
from ansible.module_utils.vllm_ansible.node.system.tool import Tools


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "str", "required": True},
            "cache": {"type": "str", "default": ""},
            "serves": {"type": "bool", "default": False},
            "fstab": {"type": "path", "default": "/etc/fstab"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    for name in ("path", "cache"):
        if wanted[name] and not wanted[name].startswith("/"):
            module.fail_json(
                msg=f"{wanted[name]} is not an absolute path",
                expected="a path that begins with /",
                found=wanted[name],
                where=name,
                fix=f"write /{wanted[name]}",
            )

    def find(name: str) -> str | None:
        path: str | None = module.get_bin_path(name, opt_dirs=["/usr/sbin", "/sbin"])
        return path

    found = look(
        wanted["path"],
        wanted["cache"],
        wanted["serves"],
        wanted["fstab"],
        not module.check_mode,
        Tools(find=find, run=module.run_command),
    )
    module.exit_json(changed=False, look=found)


if __name__ == "__main__":
    main()
