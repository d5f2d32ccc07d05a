"""An environment whose `ray` and `vllm` only listen, answer and end.

Ray's head counts who has joined and shows it where the real one does; vLLM's server wants Ray to be
complete, the key and a question. Either ends at once where the file `die-<program>-<node>` exists.
"""

from __future__ import annotations

from pathlib import Path

BEGIN = """#!/usr/bin/python3
import http.server, json, mmap, os, signal, socket, sys, threading, time
NODE = os.environ["SLURMD_NODENAME"]
PROGRAM = os.path.basename(sys.argv[0])
OPTIONS = dict(one.lstrip("-").partition("=")[::2] for one in sys.argv if one.startswith("--"))
print(PROGRAM, "begins", json.dumps(sys.argv[1:]), flush=True)
ENVIRONMENT = os.path.dirname(os.path.dirname(sys.argv[0]))
if os.path.exists(f"{ENVIRONMENT}/die-{PROGRAM}-{NODE}"):
    print("no device is left for me", flush=True)
    sys.exit(3)

def serve(address, port, handler):
    http.server.ThreadingHTTPServer.allow_reuse_address = True
    http.server.ThreadingHTTPServer((address, port), handler).serve_forever()

def log_of_rank(directory):
    os.makedirs(f"{directory}/session_2026/logs")
    open(f"{directory}/session_2026/logs/worker-0.out", "w").write(f"rank on {NODE}\\n")

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
"""
RAY = """
assert os.environ["RAY_AUTH_MODE"] == "token"
token = open(os.environ["RAY_AUTH_TOKEN_PATH"]).read().strip()
own = {"node_ip": OPTIONS["node-ip-address"], "state": "ALIVE",
       "resources_total": {"GPU": float(OPTIONS["num-gpus"])}}
log_of_rank(OPTIONS["temp-dir"])
if "head" in OPTIONS:
    nodes = [own]
    class Dashboard(Handler):
        def do_GET(self):
            right = self.headers.get("Authorization") == f"Bearer {token}"
            self.answer(200 if right else 401, {"data": {"result": {"result": nodes}}})
    class Gcs(Handler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            right = asked.pop("token") == token
            nodes.append(asked) if right else None
            self.answer(200 if right else 401, {})
    where = OPTIONS["node-ip-address"], int(OPTIONS["port"])
    threading.Thread(target=serve, args=(*where, Gcs), daemon=True).start()
    serve("127.0.0.1", int(OPTIONS["dashboard-port"]), Dashboard)
import urllib.request
data = json.dumps({**own, "token": token}).encode()
for _ in range(3000):
    try:
        urllib.request.urlopen(f"http://{OPTIONS['address']}", data, timeout=300).close()
        break
    except OSError as error:
        print(error, flush=True)
        time.sleep(0.2)
signal.pause()
"""
VLLM = """
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
key = open(option("--config")).read().partition(":")[2].strip()
print("loading shard 1 of 2", end="\\r", flush=True)
# As vLLM does for its ranks; whoever is killed leaves it behind.
shared = open(f"/dev/shm/psm_{os.getpid()}", "w+b")
shared.truncate(4096)
mapped = mmap.mmap(shared.fileno(), 4096)
class Server(Handler):
    def do_GET(self):
        self.answer(200, {})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        right = self.headers.get("Authorization") == f"Bearer {key}"
        said = {"choices": [{"message": {"content": "The capital of France is Paris."}}]}
        self.answer(200 if right else 401, said if right else {})
serve(option("--host"), int(option("--port")), Server)
"""


def make(place: Path) -> None:
    """Make the environment in a directory."""
    (place / "bin").mkdir(parents=True)
    for name, text in (("ray", BEGIN + RAY), ("vllm", BEGIN + VLLM)):
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)
    (place / "bin" / "python").symlink_to("/usr/bin/python3")
