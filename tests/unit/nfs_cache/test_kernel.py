"""What a kernel can is found by trying."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_ansible.node.nfs import kernel
from vllm_ansible.node.nfs.look import confined
from vllm_ansible.node.system.tool import Tools

RELEASE = os.uname().release
WITH = "CONFIG_FSCACHE=m\nCONFIG_CACHEFILES=m\nCONFIG_NFS_FSCACHE=y\n"


def tools(status: int = 0, said: str = "", asked: list[list[str]] | None = None) -> Tools:
    def run(argv: list[str]) -> tuple[int, str, str]:
        if asked is not None:
            asked.append(argv)
        return status, "", said

    return Tools(find=lambda name: f"/sbin/{name}", run=run)


def make(root: Path, *files: str, config: str = WITH) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "boot").mkdir(parents=True, exist_ok=True)
    (root / f"boot/config-{RELEASE}").write_text(config)
    return root


def test_a_kernel_that_caches_already_loads_nothing(tmp_path: Path) -> None:
    make(tmp_path, "dev/cachefiles", "proc/fs/fscache/caches")
    asked: list[list[str]] = []
    assert kernel.lacks_cache(tools(asked=asked), True, tmp_path) == ""
    assert asked == []


def test_a_kernel_that_was_built_without_says_which_part(tmp_path: Path) -> None:
    make(
        tmp_path, config="CONFIG_FSCACHE=m\nCONFIG_CACHEFILES=m\n# CONFIG_NFS_FSCACHE is not set\n"
    )
    found = kernel.lacks_cache(tools(), True, tmp_path)
    assert found == f"the kernel {RELEASE} was built without CONFIG_NFS_FSCACHE"


def test_a_module_that_cannot_be_loaded_is_told_in_modprobes_words(tmp_path: Path) -> None:
    refused = tools(1, "modprobe: FATAL: Module cachefiles not found in directory /lib/modules\n")
    assert "Module cachefiles not found" in kernel.lacks_cache(refused, True, tmp_path)
    assert "exit status 1" in kernel.lacks("nfs", tools(1), True, tmp_path)
    none = Tools(find=lambda name: None, run=tools().run)
    assert "no modprobe" in kernel.lacks("nfs", none, True, tmp_path)


def test_a_module_without_its_device_is_no_cache(tmp_path: Path) -> None:
    found = kernel.lacks_cache(tools(), True, make(tmp_path, "proc/fs/fscache/caches"))
    assert found.endswith(f"into the kernel {RELEASE}, but there is no /dev/cachefiles")


def test_a_kernel_before_5_17_tells_nothing_of_its_caches(tmp_path: Path) -> None:
    make(tmp_path, "dev/cachefiles", "proc/fs/fscache/stats")
    found = kernel.lacks_cache(tools(), True, tmp_path)
    assert found.endswith("but there is no /proc/fs/fscache/caches")


def test_in_check_mode_modules_are_only_looked_for(tmp_path: Path) -> None:
    asked: list[list[str]] = []
    assert kernel.lacks_cache(tools(asked=asked), False, tmp_path) == ""
    assert kernel.lacks("nfs", tools(asked=asked), False, tmp_path) == ""
    assert asked == [
        ["/sbin/modprobe", "--dry-run", "cachefiles"],
        ["/sbin/modprobe", "--dry-run", "nfs"],
    ]


def test_a_file_system_is_known_by_its_whole_name(tmp_path: Path) -> None:
    make(tmp_path, "proc/filesystems")
    (tmp_path / "proc/filesystems").write_text("nodev\tnfsd\n\text4\n")
    assert kernel.has_file_system("nfsd", tmp_path)
    assert not kernel.has_file_system("nfs", tmp_path)
    assert "knows no file system nfs" in kernel.lacks("nfs", tools(), True, tmp_path)


def test_a_profile_of_apparmor_is_found_by_its_program(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.write_text("/usr/bin/man (enforce)\n/usr/sbin/cachefilesd (complain)\n")
    assert confined("cachefilesd", profiles) == "/usr/sbin/cachefilesd (complain)"
    assert confined("files", profiles) == ""
    assert confined("cachefilesd", tmp_path / "none") == ""
