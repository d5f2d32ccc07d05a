"""HAProxy releases whose Lua filters are not safe with threads run one."""

from __future__ import annotations

import pytest

from vllm_ansible.door.haproxy import threads


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("2.6.12-1+deb12u4 2026/10/17", 1),
        ("2.6.16-abcdef0 2023/12/14", 1),
        ("2.6.17-a5ebd28 2024/04/05", 4),
        ("2.7.12-abcdef0 2024/04/05", 1),
        ("2.8.5-1ubuntu3.4 2025/10/01", 1),
        ("2.8.8-abcdef0 2024/04/05", 4),
        ("2.8.16-0ubuntu0.24.04.1 2025/10/03", 4),
        ("2.9.6-abcdef0 2024/02/26", 1),
        ("3.0.0-abcdef0 2024/05/29", 4),
        ("3.0.11-1+deb13u1 2025/10/03", 4),
        ("3.0-dev5-abcdef0 2024/03/09", 1),
        ("10.0.1-abcdef0 2031/01/01", 4),
    ],
)
def test_threads_go_by_the_release(version: str, number: int) -> None:
    said = f"HAProxy version {version} - https://haproxy.org/\nStatus: long-term supported branch\n"
    assert threads(said, 8) == number


def test_no_more_threads_than_cores_and_one_of_what_does_not_say_its_version() -> None:
    said = "HAProxy version 3.2.1-abcdef0 2025/06/10 - https://haproxy.org/\n"
    assert [threads(said, cores) for cores in (0, 1, 2, 64)] == [1, 1, 2, 4]
    assert threads("", 8) == threads("nginx version: nginx/1.22.1", 8) == 1
    assert threads("HA-Proxy version 2.2.9-2+deb11u6 2023/12/19 - https://haproxy.org/", 8) == 1
