"""What a site's lines have set reaches engines, and nothing else of a job does."""

from __future__ import annotations

from vllm_ansible.node.slurm.site_environment import SITE, site_environment


def test_what_the_lines_have_set_is_taken_and_nothing_else() -> None:
    given = {
        SITE: "PATH CUDA_HOME _ SHLVL GONE",
        "PATH": "/opt/cuda/bin:/usr/bin",
        "CUDA_HOME": "/opt/cuda",
        "_": "/usr/bin/env",
        "SHLVL": "2",
        "SLURM_JOB_ID": "12",
    }
    expected = {"CUDA_HOME": "/opt/cuda", "PATH": "/opt/cuda/bin:/usr/bin"}
    assert site_environment(given) == expected


def test_secrets_go_by_file() -> None:
    given = {SITE: "HF_TOKEN AWS_SECRET_ACCESS_KEY MY_PASSWORD", "HF_TOKEN": "x"}
    assert site_environment({**given, "AWS_SECRET_ACCESS_KEY": "y", "MY_PASSWORD": "z"}) == {}


def test_a_host_without_an_allocation_has_none() -> None:
    assert site_environment({"PATH": "/usr/bin"}) == {}
