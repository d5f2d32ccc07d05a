"""The directories of a cluster on a host, and files in them: who owns them, and who may read."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from typing import Any, Optional

from .. import safely
from ..failure import Failure

MODE = 0o644


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


def write(
    files: Mapping[str, str], user: pwd.struct_passwd, look: bool
) -> dict[str, Optional[str]]:
    """Write the files that differ, in this order; return what each held before, None of none.

    Everybody who may enter their directories reads them, and the connecting user alone changes
    them: root writes none where the owner could put another directory in the place of theirs.
    """
    service = safely.User.of(user) if os.geteuid() == 0 else None
    replaced: dict[str, Optional[str]] = {}
    for path, content in files.items():
        above, name = os.path.split(os.path.abspath(path))
        try:
            with safely.walked(above, against=service) as place:
                found = _text(place, name)
                if found == content and _is_ours(place.look(name)):
                    continue
                if not look:
                    text, user_id, group = content.encode(), os.geteuid(), os.getegid()
                    safely.replace_in(place, name, text, user_id, group, MODE)
        except OSError as error:
            if not (look and isinstance(error, FileNotFoundError)):
                raise Failure(
                    f"cannot write {path}: {error}",
                    expected=f"a file of {safely.named(os.geteuid())}",
                    found=str(error),
                    where=path,
                    fix="move what is there away, or choose another cluster_dir",
                ) from error
            found = None  # its directory would have been made
        replaced[path] = found
    return replaced


def _is_ours(one: os.stat_result) -> bool:
    return stat.S_IMODE(one.st_mode) == MODE and one.st_uid == os.geteuid()


def _text(place: safely.Directory, name: str) -> Optional[str]:
    """Return what a file holds, None where there is none; a link is none."""
    try:
        if not stat.S_ISREG(place.look(name).st_mode):
            return None
    except FileNotFoundError:
        return None
    with os.fdopen(safely.open_in(place, name), encoding="utf-8", errors="replace") as file:
        return file.read()
