"""A host that was refused is as it was."""

from testinfra.host import Host


def test_nothing_was_installed_written_or_mounted(host: Host) -> None:
    assert not host.package("cachefilesd").is_installed
    assert "/srv/shared" not in host.file("/etc/fstab").content_string
    assert not host.file("/srv/shared").exists
    assert not host.file("/etc/cachefilesd.conf").exists
    assert "/srv/shared" not in host.check_output("cat /proc/self/mountinfo")
