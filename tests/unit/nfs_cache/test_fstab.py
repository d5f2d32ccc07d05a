"""One line of fstab is ours, all others are somebody else's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.node.nfs.fstab import in_fstab, with_line

TEXT = (
    "# 10.0.0.1:/old /srv/shared nfs soft 0 0\n"
    "\n"
    "/dev/vda / ext4 defaults 0 1\n"
    "10.0.0.1:/a\\040b /srv/shared/ nfs4 hard,fsc 0 0  # ours\n"
    "tmpfs\t/tmp tmpfs\n"
)


def test_a_line_is_found_by_its_path() -> None:
    assert in_fstab("/srv/shared", TEXT) == {
        "point": "/srv/shared/",
        "source": "10.0.0.1:/a b",
        "kind": "nfs4",
        "options": "hard,fsc",
    }
    assert in_fstab("/srv", TEXT) is None
    assert in_fstab("/srv/shared", "") is None


def test_of_several_lines_the_first_counts_as_it_does_to_mount() -> None:
    found = in_fstab("/a", "nas:/one /a nfs hard\nnas:/two /a nfs soft\n")
    assert found is not None
    assert found["source"] == "nas:/one"


def test_a_line_as_wanted_stays_as_it_was_written() -> None:
    assert with_line(TEXT, "/srv/shared", "10.0.0.1:/a b", "nfs4", "hard,fsc") == TEXT


def test_a_line_is_replaced_in_its_place_and_its_doubles_go() -> None:
    text = TEXT + "nas:/x /srv/shared nfs ro 0 0\n"
    lines = with_line(text, "/srv/shared", "nas:/x y", "nfs", "soft").split("\n")
    assert lines == [
        *TEXT.split("\n")[:3],
        "nas:/x\\040y /srv/shared nfs soft 0 0",
        *TEXT.split("\n")[4:],
    ]


def test_a_new_line_comes_last_even_where_the_last_was_not_ended() -> None:
    line = "nas:/x /a nfs hard 0 0\n"
    assert with_line("", "/a", "nas:/x", "nfs", "hard") == line
    assert with_line("/dev/vda / ext4", "/a", "nas:/x", "nfs", "hard") == f"/dev/vda / ext4\n{line}"


@given(st.text(st.characters(codec="latin-1"), max_size=200))
def test_what_was_written_once_is_found_and_not_written_again(text: str) -> None:
    wanted = ("/srv/shared", "nas:/a#b c", "nfs", "hard,fsc")
    once = with_line(text, *wanted)
    assert with_line(once, *wanted) == once
    found = in_fstab("/srv/shared", once)
    assert found is not None
    assert (found["source"], found["options"]) == ("nas:/a#b c", "hard,fsc")
    kept = [line for line in text.split("\n") if line and "/srv/shared" not in line]
    assert [line for line in kept if line not in once.split("\n")] == []
