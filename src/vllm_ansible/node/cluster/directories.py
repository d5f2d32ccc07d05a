"""The directories of a cluster on a host: who owns them, and who may read them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import Any

from .. import safely
from ..failure import Failure


def keep(wanted: Mapping[str, Any], user: pwd.struct_passwd, look: bool) -> list[str]:
    """Make what is missing, set owner and mode where they differ, and return which these were.

    wanted: directories, and which of them are administered and private, as the module
    cluster_directories takes them.
    """
    service = safely.User.of(user)
    made = []
    for path in wanted["directories"]:
        uid, mode = user.pw_uid, 0o750
        if path in wanted["administered"]:
            uid = os.getuid()
        elif path in wanted["private"]:
            mode = 0o700
        try:
            if safely.keep_directory(path, uid, user.pw_gid, mode, service, look):
                made.append(path)
        except OSError as error:
            owner = safely.named(uid)
            raise Failure(
                f"cannot make {path}: {error}",
                expected=f"a directory of {owner}",
                found=str(error),
                where=path,
                fix=f"move what is there away, give it to {owner} if it is meant for this "
                "cluster (chown), or choose another cluster_dir or models_dir",
            ) from error
    return made
