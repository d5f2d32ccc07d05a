"""Call one function of the node code in the Python that runs this, by JSON."""

import json
import sys

from vllm_ansible.node.process import background, manage, process, processes, supervisord

request = json.load(sys.stdin)
kind = request.pop("kind")
try:
    if kind == "manage":
        wanted = request.pop("wanted")
        files = process.Files(request["cluster_dir"], request.pop("name"))
        names = ("cluster_dir", "run_dir", "python")
        backend = supervisord.Supervisord(*(request.pop(name) for name in names))
        specification = process.spec(wanted) if wanted else None
        answer = manage.manage(backend, files, specification, **request)
    elif kind == "processes":
        answer = processes.looks(request["cluster_dir"], "demo", lambda argv: (1, "", "no systemd"))
    elif kind == "start":
        command = background.Command(tuple(request.pop("argv")), **request.pop("how", {}))
        answer = background.start(work=command, **request)
    elif kind == "count":

        def work(report):
            for number in range(request["steps"]):
                report(number + 1, request["steps"], "steps", f"step {number + 1}")
            print("counted")
            if request.get("error"):
                raise process.ProcessError("it broke", found="pieces")
            return {"steps": request["steps"]}

        answer = background.start(request["tasks_dir"], request["name"], work, digest="d")
    elif kind == "look":
        answer = background.look(**request)
    else:
        answer = background.stop(**request)
except process.ProcessError as error:
    answer = {"error": str(error), **error.details}
print(json.dumps(answer))
