"""Print a key as an engine does at its start, in one of the ways that a write may be cut."""

# Standard library only: it runs as the engine of a host.

import os
import signal
import sys
import time

how, path = sys.argv[1:]
with open(path) as file:
    key = file.read().strip()
line = f"(APIServer pid=7) INFO non-default args: {{'api_key': ['{key}'], 'port': 8000}}\n"


def say(text: str) -> None:
    os.write(1, text.encode())


say("begins\n")
if how == "once":
    say(line)
elif how == "twice":
    cut = line.index(key) + len(key) // 2
    say(line[:cut])
    time.sleep(0.3)
    say(line[cut:])
elif how == "bytes":
    for letter in line:
        say(letter)
        time.sleep(0.002)
elif how == "boundary":
    # What is read at once ends within the key, wherever that begins in it.
    for ahead in range(1, len(key)):
        say("." * (65536 - ahead) + line)
elif how == "killed":
    say(line)
    say("last words")
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "much":
    for number in range(200_000):
        print(number, flush=False)
    print(line, end="", flush=True)
say("ends\n")
