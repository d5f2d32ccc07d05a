"""Run by the engine's Python: knock at Ray's ports without a token, and with a wrong one.

Takes [[address, port], ...] and prints for each what HTTP answers and what gRPC answers.
"""

import concurrent.futures
import http.client
import json
import socket
import sys

import grpc

# One method of every service that a Ray node offers.
METHODS = (
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.rpc.RayletDriver/ListNamedActors",
    "/ray.rpc.RayletDataStreamer/Datapath",
)
TOKENS = {"without a token": None, "with a wrong token": "Bearer " + "f" * 64}


def http_answer(address, port, token):
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request(
            "GET", "/api/v0/nodes", headers={"Authorization": token} if token else {}
        )
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def grpc_answers(address, port, token):
    metadata = [("authorization", token)] if token else []
    answers = {}
    with grpc.insecure_channel(f"{address}:{port}") as channel:
        for method in METHODS:
            try:
                channel.unary_unary(method)(b"", timeout=5, metadata=metadata)
                answers[method] = "OK"
            except grpc.RpcError as error:
                answers[method] = error.code().name
    return answers


def knock(door):
    address, port = door
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError as error:
        return [{"port": port, "open": False, "why": str(error)}]
    found = []
    for name, token in TOKENS.items():
        status = http_answer(address, port, token)
        speaks_http = isinstance(status, int)
        answers = {} if speaks_http else grpc_answers(address, port, token)
        found.append({"port": port, "open": True, "who": name, "http": status, "grpc": answers})
    return found


with concurrent.futures.ThreadPoolExecutor(16) as pool:
    doors = json.loads(sys.argv[1])
    print(json.dumps([answer for answers in pool.map(knock, doors) for answer in answers]))
