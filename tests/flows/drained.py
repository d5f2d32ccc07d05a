"""What becomes of a stream when its server is told to finish, and of who comes after."""

# Standard library only: it runs on the host of the server, which is a unit of systemd there. With a
# file to make once a stream has begun, something else drains the server.
DRAIN = """
import json, os, signal, subprocess, sys, time, urllib.error, urllib.request
url, key_file, model, unit, *begun = sys.argv[1:]
show = ["systemctl", "show", "--property=MainPID", "--value", unit]
process = int(subprocess.run(show, check=True, capture_output=True, text=True).stdout)
headers = {"Authorization": "Bearer " + open(key_file).read().strip()}
headers["Content-Type"] = "application/json"
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask(**more):
    body = {"model": model, "prompt": "One, two,", "temperature": 0, "ignore_eos": True, **more}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
    return opener.open(request, timeout=300)

def refused():
    try:
        ask(max_tokens=1).read()
    except urllib.error.HTTPError as error:
        return error.code

wanted = 400
stream = ask(max_tokens=wanted, stream=True, stream_options={"include_usage": True})
stream.readline()
if begun:
    open(begun[0], "w").close()
    deadline = time.monotonic() + 120
    while refused() != 503 and time.monotonic() < deadline:
        time.sleep(0.5)
else:
    os.kill(process, signal.SIGUSR1)
codes = [refused() for _ in range(3)]
lines = [line.decode().strip() for line in stream]
events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
deadline = time.monotonic() + 120
while os.path.exists(f"/proc/{process}") and time.monotonic() < deadline:
    time.sleep(0.2)
print(json.dumps({
    "wanted": wanted,
    "tokens": events[-1]["usage"]["completion_tokens"],
    "whole": "data: [DONE]" in lines,
    "refused": codes[-1],
    "ended": not os.path.exists(f"/proc/{process}"),
}))
"""
