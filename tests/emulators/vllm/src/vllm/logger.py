"""Lines of a log in vLLM's form."""

import os
import time


def log(text: str) -> None:
    moment = time.strftime("%m-%d %H:%M:%S")
    print(f"(APIServer pid={os.getpid()}) INFO {moment} [stand_in.py:1] {text}", flush=True)
