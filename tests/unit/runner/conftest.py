"""A small checkout with the real callbacks, so that real runs are tested and not imitated."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

SITE = """
- name: Look
  hosts: gpu
  gather_facts: false
  tags: [prepare]
  tasks:
    - name: Measure the hosts
      ansible.builtin.set_fact:
        measured: "{{ inventory_hostname }}"
    - name: Say what was found
      look:
        summary: "3 of 3 fine"
        gate: prepare
- name: Serve
  hosts: gpu
  gather_facts: false
  tags: [serve]
  tasks:
    - name: Change something
      ansible.builtin.debug:
        msg: "{{ secret_token | default('none') | length }}"
      changed_when: true
      when: change | default(false) | bool
    - name: Answer
      look:
        summary: "dsr1 answers"
        gate: serve
        values:
          engines:
            - name: dsr1
              model: deepseek-ai/DeepSeek-R1
              served_name: r1
              endpoint: http://10.0.0.1:8000/v1
              api_key_file: /k
"""

FAILING = """
- name: Serve
  hosts: gpu
  gather_facts: false
  any_errors_fatal: true
  tags: [serve]
  tasks:
    - name: Try first what may fail
      block:
        - name: Fail and be rescued
          ansible.builtin.fail: {msg: an early try}
      rescue:
        - name: Carry on
          ansible.builtin.debug: {msg: on}
    - name: Wait for the engine
      look:
        msg: The engine died while loading
        expected: 163 shards
        found: 118 shards
        cause: the disk is full
        fix: make room
        command: vllm serve /models/r1
"""

REFUSING = """
- name: Check
  hosts: gpu
  gather_facts: false
  tags: [validate]
  tasks:
    - name: Check the names
      look:
        msg: There is no variable clustername
        fix: write cluster_name
"""

STATUS = """
- name: Look
  hosts: gpu
  gather_facts: false
  tags: [status]
  tasks:
    - name: Look at the processes
      look: {summary: "dsr1-serve runs on {{ inventory_hostname }}", gate: status}
"""

LOGS = """
- name: Follow
  hosts: gpu
  gather_facts: false
  tags: [logs]
  tasks:
    - name: Show a line
      ansible.builtin.debug: {msg: "rank 0 of {{ inventory_hostname }}: {{ word }}"}
"""

WAITING = """
- name: Serve
  hosts: gpu
  gather_facts: false
  tags: [serve]
  tasks:
    - name: Wait long
      ansible.builtin.wait_for: {timeout: 120}
"""

LOOK = '''
"""Return the arguments as a result, as a gate does."""
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        arguments = dict(self._task.args)
        if "summary" in arguments:
            return {"changed": False, "evidence": arguments}
        return {"failed": True, **arguments}
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a project laid out as ours, with two hosts on this machine."""
    root = tmp_path / "checkout"
    (root / "playbooks").mkdir(parents=True)
    (root / "action_plugins").mkdir()
    (root / "inventories" / "two").mkdir(parents=True)
    (root / "callback_plugins").symlink_to(REPOSITORY / "callback_plugins")
    (root / "ansible.cfg").write_text(
        "[defaults]\ncallback_plugins = callback_plugins\naction_plugins = action_plugins\n"
        "stdout_callback = stages\ncallbacks_enabled = run_record\nhost_key_checking = True\n"
        "[inventory]\nunparsed_is_failed = True\nany_unparsed_is_failed = True\n"
    )
    (root / "site.yml").write_text(SITE)
    (root / "playbooks" / "failing.yml").write_text(FAILING)
    (root / "playbooks" / "waiting.yml").write_text(WAITING)
    (root / "playbooks" / "validate.yml").write_text(REFUSING)
    (root / "playbooks" / "status.yml").write_text(STATUS)
    (root / "playbooks" / "logs.yml").write_text(LOGS)
    (root / "playbooks" / "teardown.yml").write_text(FAILING)
    (root / "action_plugins" / "look.py").write_text(LOOK)
    (root / "inventories" / "two" / "hosts.yml").write_text(
        "gpu: {hosts: {gh-01: {}, gh-02: {}}, vars: "
        "{ansible_connection: local, ansible_python_interpreter: "
        "'{{ ansible_playbook_python }}'}}\n"
    )
    return root
