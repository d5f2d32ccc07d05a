"""The objects under one prefix of a bucket."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import object_answers
from botocore.client import Config
from botocore.exceptions import ClientError
from growing import Answer
from messages import say
from words import Failure, route_to

AMAZON = "https://s3.amazonaws.com"  # unless told otherwise
CHUNK = 2**16
CONNECT_SECONDS = 10
STALL_SECONDS = 60.0
CONNECTIONS = 64  # at once; more than workers


@dataclass(frozen=True)
class Stored:
    """One object, by its name below the prefix, and the tag that another content would change."""

    name: str
    bytes: int
    etag: str


def split(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of s3://bucket/prefix; the prefix ends with a slash."""
    bucket, _, prefix = url[len("s3://") :].partition("/")
    return bucket, f"{prefix.rstrip('/')}/" if prefix else ""


def route() -> str:
    """Return the store's address and the proxy before it."""
    told = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return route_to(told or AMAZON)


class Bucket:
    """One s3://bucket/prefix, read with whatever credentials boto3 finds on this host."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.url = request["model"]
        self.bucket, self.prefix = split(self.url)
        self.client = boto3.session.Session().client(
            "s3",
            # As for the hub; None leaves it to AWS_CA_BUNDLE.
            verify=None if os.environ.get("AWS_CA_BUNDLE") else os.environ.get("SSL_CERT_FILE"),
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                # No byte for so long is an error, and the next attempt goes on from there.
                read_timeout=float(request.get("stall_seconds", STALL_SECONDS)),
                retries={"total_max_attempts": 1},  # all threads wait together, see patience.py
                max_pool_connections=CONNECTIONS,
                response_checksum_validation="when_required",  # everything is hashed anyway
            ),
        )

    def objects(self) -> list[Stored]:
        """Return all objects under the prefix, in the order of their names."""
        pages = self.client.get_paginator("list_objects_v2")
        found: list[Stored] = []
        for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix):
            found += [
                Stored(one["Key"][len(self.prefix) :], int(one["Size"]), one["ETag"])
                for one in page.get("Contents", [])
                if not one["Key"].endswith("/")  # what consoles make of a folder
            ]
            say(progress=[len(found), None, "objects", "listing"])
        return found

    def sha256(self, one: Stored) -> str:
        """Return the sha256 that the store keeps of a whole object; empty without one."""
        with self._named(one):
            told = self.client.head_object(
                Bucket=self.bucket,
                Key=self.prefix + one.name,
                IfMatch=one.etag,
                ChecksumMode="ENABLED",
            )
        digest = str(told.get("ChecksumSHA256") or "")
        # Of an object in parts it is a digest of their digests, with their number behind it.
        whole = told.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT" and "-" not in digest
        return base64.b64decode(digest).hex() if whole else ""

    @contextmanager
    def answer(self, one: Stored, have: int) -> Iterator[Answer]:
        """Ask for an object from an offset on; raise Failure where it is another one by now."""
        wanted = {"Range": f"bytes={have}-"} if have else {}
        with self._named(one):
            told = self.client.get_object(
                Bucket=self.bucket, Key=self.prefix + one.name, IfMatch=one.etag, **wanted
            )
        with closing(told["Body"]) as body:
            if told.get("ETag", one.etag) != one.etag:  # a store that knows no conditions
                raise self._changed(one, told["ETag"])
            partial = told["ResponseMetadata"]["HTTPStatusCode"] == 206
            yield have if partial else 0, body.iter_chunks(CHUNK)

    @contextmanager
    def _named(self, one: Stored) -> Iterator[None]:
        """Turn refusals of one object into words; those of the store itself pass."""
        try:
            yield
        except ClientError as error:
            status, code = object_answers.status_of(error), object_answers.code_of(error)
            if status == 412:
                raise self._changed(one, "412: it is another one by now") from error
            if status == 404 and code != "NoSuchBucket":
                raise self._changed(one, f"{code}: it is gone") from error
            raise

    def _changed(self, one: Stored, found: str) -> Failure:
        return Failure(
            f"{one.name} of {self.url} changed while it was fetched",
            expected=f"the object as it was listed, {one.bytes} bytes with the ETag {one.etag}",
            found=found,
            where=route(),
            fix="wait until whoever writes there is done, and run the stage weights again",
        )
