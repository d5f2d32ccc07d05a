"""EC2 over HTTP on the loopback: an emulator held to the model that botocore publishes.

    with Ec2(Account({("p5.48xlarge", "us-east-2a"): 2})) as cloud:
        cloud.account.faults.throttled["RunInstances"] = 1
        ... an endpoint at cloud.url, for AWS_ENDPOINT_URL ...
        cloud.log

Each request is parsed and checked against the model, each answer is shaped by it; an answer that
does not fit is kept in `misfits`. Of Systems Manager it knows GetParameter. Signatures are not
verified, but a request of another access key than `KEY_ID` is refused.
"""

from __future__ import annotations

import json
import urllib.parse
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

from botocore.validate import ParamValidator
from moto.core.parse import EC2QueryParser
from moto.core.serialize import EC2Serializer
from moto.core.utils import get_service_model
from werkzeug.datastructures import MultiDict

from .ec2_account import Account
from .ec2_parts import KEY_ID, REGION, Refusal, wrong
from .served import Served

# Answers come in pages of so many.
PAGE = 1
PAGED = {"DescribeInstances": "Reservations"}
READS = ("Describe", "Get")


@cache
def model() -> Any:
    """Return EC2 as botocore describes it, in moto's classes."""
    return get_service_model("ec2")


class Ec2(Served):
    """An account behind an address of this machine; `elsewhere` is what it has in other regions."""

    def __init__(self, account: Account, elsewhere: dict[str, Account] | None = None) -> None:
        self.account = account
        self.regions = {REGION: account, **(elsewhere or {})}
        account.offers.regions = list(self.regions)
        # Operations in the order in which they came, each with what it was answered: a code, or OK.
        self.log: list[tuple[str, str]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.misfits: list[str] = []
        self.keys: set[str] = set()
        self.serve(_handler(self))

    @property
    def url(self) -> str:
        """The endpoint."""
        return self.origin

    @property
    def writes(self) -> list[str]:
        """Operations that could change something, whatever they were answered."""
        return [name for name, _ in self.log if not name.startswith(READS)]

    def answer(self, headers: Any, body: bytes) -> tuple[int, str] | None:
        """Return status and body of an answer; None is silence."""
        with self._lock:
            if target := headers.get("X-Amz-Target"):
                return self._parameter(target.partition(".")[2], json.loads(body))
            form = MultiDict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
            name = str(form["Action"])
            try:
                content = self._content(name, form, headers.get("Authorization", ""))
                self.log.append((name, "OK"))
            except Refusal as refusal:
                self.log.append((name, refusal.code))
                return refusal.status, _error(refusal)
            except Exception as error:
                # A fault of the emulator's own, which no test may take for one of EC2.
                self.misfits.append(f"{name}: {error!r}")
                raise
            lost = self.account.faults.lost
            if lost.get(name, 0) > 0:
                lost[name] -= 1
                return None
            return 200, content

    def _content(self, name: str, form: Any, authorization: str) -> str:
        faults = self.account.faults
        if f"Credential={KEY_ID}/" not in authorization:
            words = "AWS was not able to validate the provided access credentials"
            raise Refusal("AuthFailure", words, 401)
        if faults.throttled.get(name, 0) > 0:
            faults.throttled[name] -= 1
            raise Refusal("RequestLimitExceeded", "Request limit exceeded.", 503)
        if name in faults.denied:
            words = (
                "You are not authorized to perform this operation. User: "
                f"arn:aws:iam::123456789012:user/ann is not authorized to perform: ec2:{name}. "
                "Encoded authorization failure message: dGhpcyBpcyBsb25n"
            )
            raise Refusal("UnauthorizedOperation", words, 403)
        operation = model().operation_model(name)
        parser = EC2QueryParser(operation)
        given = {"values": form, "body": "", "headers": {}, "method": "POST"}
        asked = parser.parse({**given, "url_params": {}, "url_path": "/"}) or {}
        found = ParamValidator().validate(asked, operation.input_shape)
        if found.has_errors():
            raise wrong(found.generate_report())
        self.requests.append((name, asked))
        region = authorization.partition(f"Credential={KEY_ID}/")[2].split("/")[1:2]
        account = self.regions.get(region[0] if region else REGION)
        if account is None:
            raise Refusal("OptInRequired", "You are not subscribed to this region.", 401)
        answer = self._paged(name, asked, self._carry_out(account, name, asked))
        if operation.output_shape:
            misfits = ParamValidator().validate(_plain(answer), operation.output_shape)
            if misfits.has_errors():
                self.misfits.append(f"{name}: {misfits.generate_report()}")
        done = EC2Serializer(operation).serialize(answer)["body"]
        return done.decode() if isinstance(done, bytes) else str(done)

    def _carry_out(self, account: Account, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        network = account.network
        if name == "AuthorizeSecurityGroupIngress":
            return network.authorize(asked, "IpPermissions")
        if name == "AuthorizeSecurityGroupEgress":
            return network.authorize(asked, "IpPermissionsEgress")
        if name == "RevokeSecurityGroupIngress":
            return network.revoke(asked)
        if name == "AssociateAddress":
            return network.associate_address(asked, account.at(asked))
        method = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)[1:]
        for place in (account, network, account.offers):
            if hasattr(place, method):
                return dict(getattr(place, method)(asked))
        raise Refusal("InvalidAction", f"The action {name} is not valid for this endpoint")

    def _paged(self, name: str, asked: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if name not in PAGED or len(answer[PAGED[name]]) <= PAGE:
            return answer
        first = int(asked.get("NextToken", 0))
        every, last = answer[PAGED[name]], first + PAGE
        more = {"NextToken": str(last)} if last < len(every) else {}
        return {**answer, PAGED[name]: every[first:last], **more}

    def _parameter(self, name: str, asked: dict[str, Any]) -> tuple[int, str]:
        value = self.account.parameters.get(asked["Name"])
        if value is None:
            self.log.append((name, "ParameterNotFound"))
            return 400, json.dumps({"__type": "ParameterNotFound", "message": ""})
        self.log.append((name, "OK"))
        return 200, json.dumps({"Parameter": {"Name": asked["Name"], "Value": value}})


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what moto's types have beyond the model."""
    known = set(model().shape_for("InstanceTypeInfo").members)
    if "InstanceTypes" in answer:
        kinds = [{k: v for k, v in one.items() if k in known} for one in answer["InstanceTypes"]]
        return {**answer, "InstanceTypes": kinds}
    return answer


def _error(refusal: Refusal) -> str:
    code, message = refusal.code, refusal.message.replace("&", "&amp;").replace("<", "&lt;")
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>emulated</RequestID></Response>"


def _handler(cloud: Ec2) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = cloud.answer(self.headers, body)
            if found is None:
                self.close_connection = True
                return
            status, text = found
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing: `cloud.log` holds it all."""

    return Handler
