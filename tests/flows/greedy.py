"""The text that an engine continues a prompt with when it always takes the likeliest token."""

# Standard library only: it runs with the Python of a host, which reads the key from its file.
ASK = """
import json, sys, urllib.request
url, key_file, model = sys.argv[1:]
body = {
    "model": model, "prompt": "The capital of France is", "max_tokens": 32,
    "temperature": 0, "ignore_eos": True, "return_token_ids": True,
}
headers = {"Authorization": "Bearer " + open(key_file).read().strip()}
headers["Content-Type"] = "application/json"
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
with opener.open(request, timeout=600) as answer:
    choice = json.load(answer)["choices"][0]
print(json.dumps({"text": choice["text"], "tokens": choice["token_ids"]}))
"""
