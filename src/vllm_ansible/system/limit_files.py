"""The files that set limits, and the sh that writes them for an administrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_ansible.system.judged import HEADER, File, Repair

UNLIMITED = -1
LOGINS = "/etc/security/limits.d/90-vllm-ansible.conf"
LARGER = (
    "larger() {",
    '    case "$1 $2" in',
    "        *unlimited* | *infinity*) echo infinity ;;",
    '        *) [ "$1" -gt "$2" ] && echo "$1" || echo "$2" ;;',
    "    esac",
    "}",
)
UNITS = "/etc/systemd/system.conf.d/90-vllm-ansible.conf"


def repair(settable: Mapping[str, int], units_now: Mapping[str, Sequence[int]]) -> Repair:
    """Return the files for logins and units, with values that can be set.

    units_now are soft and hard limits of units, none where there is no systemd. What they have is
    never lowered: systemd itself may be allowed more than a login.
    """
    files = [File(LOGINS, logins({kind: word(kind, value) for kind, value in settable.items()}))]
    commands: list[tuple[str, ...]] = []
    if units_now:
        most = {
            kind: larger(value, units_now[kind][1] if kind in units_now else value)
            for kind, value in settable.items()
        }
        files.append(File(UNITS, units({kind: infinity(value) for kind, value in most.items()})))
        commands.append(("systemctl", "daemon-reload"))
    return Repair(files=tuple(files), commands=tuple(commands), script=script(settable))


def logins(values: Mapping[str, str]) -> str:
    """Return limits.conf for all users; `*` does not mean root."""
    lines = [f"{who} - {kind} {value}" for who in ("*", "root") for kind, value in values.items()]
    return HEADER + "".join(f"{line}\n" for line in lines)


def units(values: Mapping[str, str]) -> str:
    """Return a drop-in of the manager of systemd."""
    lines = [f"DefaultLimit{kind.upper()}={value}" for kind, value in values.items()]
    return HEADER + "[Manager]\n" + "".join(f"{line}\n" for line in lines)


def script(settable: Mapping[str, int]) -> tuple[str, ...]:
    """Return sh that writes what can be set here: a login with more would be refused."""
    letters = {"nofile": "n", "memlock": "l"}
    lines = []
    for kind, value in settable.items():
        letter, most = letters[kind], word(kind, value)
        lines.append(
            f"if (ulimit -H{letter} {most}) 2>/dev/null; then {kind}={most}; "
            f"else {kind}=$(ulimit -H{letter}); fi"
        )
    inside = {kind: f"${kind}" for kind in settable}
    of_units = [
        line
        for kind in settable
        for line in (
            # ulimit counts locked memory in KiB as limits.conf does; systemd takes bytes.
            *([f'[ "${kind}" = unlimited ] || {kind}=$(({kind} * 1024))'] * (kind == "memlock")),
            f"there=$(systemctl show --property=DefaultLimit{kind.upper()} --value)",
            f'{kind}=$(larger "${kind}" "$there")',
        )
    ]
    return (
        *lines,
        "mkdir -p /etc/security/limits.d",
        f"cat > {LOGINS} <<END",
        *logins(inside).splitlines(),
        "END",
        "if [ -d /run/systemd/system ]; then",
        *LARGER,
        *of_units,
        "mkdir -p /etc/systemd/system.conf.d",
        f"cat > {UNITS} <<END",
        *units(inside).splitlines(),
        "END",
        "systemctl daemon-reload",
        "fi",
    )


def larger(one: int, other: int) -> int:
    """Return the larger of two limits, where -1 is without limit."""
    return UNLIMITED if UNLIMITED in (one, other) else max(one, other)


def word(kind: str, value: int) -> str:
    """Return a limit as limits.conf and ulimit write it: locked memory is in KiB there."""
    if value == UNLIMITED:
        return "unlimited"
    return str(value // 1024 if kind == "memlock" else value)


def infinity(value: int) -> str:
    """Return a limit as systemd writes it, locked memory in bytes."""
    return "infinity" if value == UNLIMITED else str(value)
