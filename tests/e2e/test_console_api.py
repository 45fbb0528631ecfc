"""The calls the console is made of: pages of keys, maps of objects, sessions, and the door to S3."""

from __future__ import annotations

import json
import random
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

from outside.archives import layer, tar_gz
from outside.buckets import NewServer, mode_tables
from outside.clients import S3Client, s3_client
from outside.server import ROOT, Server, Value, until

READ_TOKEN = "fedcba9876543210fedcba9876543210"
BUCKET = "delta-00"
SEALED = "delta-aes256-00"
BUILDS = 3


def builds() -> list[bytes]:
    """Successive builds: each has the one before it with some new bytes, and nothing zstd could shrink."""
    source = random.Random(18)
    content = bytearray(source.randbytes(600_000))
    made = []
    for _ in range(BUILDS):
        content[100_000:130_000] = source.randbytes(30_000)
        made.append(bytes(content))
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Builds in a plain and in a sealed bucket, and keys to page through."""
    tables: dict[str, dict[str, Value]] = {"server": {"admin_read_token": READ_TOKEN}}
    with Server(tmp_path_factory.mktemp("console"), mode_tables() | tables) as server:
        s3 = s3_client(server.endpoint)
        for bucket in (BUCKET, SEALED):
            s3.create_bucket(Bucket=bucket)
            for number, content in enumerate(builds()):
                s3.put_object(Bucket=bucket, Key=f"app/build-{number}.bin", Body=content, Metadata={"build": "yes"})
        for number in range(25):
            s3.put_object(Bucket=BUCKET, Key=f"keys/{number:02}", Body=b"x", Tagging="colour=blue")
        server.settle()
        yield server


def schema_errors(value: Any, schema: Any, document: Any, where: str = "$") -> list[str]:
    """What of a value does not fit its schema: the keywords that docs/reference/openapi.json uses."""
    if "$ref" in schema:
        return schema_errors(value, document["components"]["schemas"][schema["$ref"].rsplit("/")[-1]], document, where)
    found = [error for part in schema.get("allOf", []) for error in schema_errors(value, part, document, where)]
    choices = schema.get("anyOf")
    if choices and all(schema_errors(value, choice, document, where) for choice in choices):
        found.append(f"{where} fits no choice: {value!r:.200}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is {value!r}, not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where} is {value!r}, not {schema['const']!r}")
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
        "array": list,
        "null": type(None),
    }
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        return [*found, f"{where} is no {kind}: {value!r:.200}"]
    if kind == "object":
        found += [f"{where}.{name} is missing" for name in schema.get("required", []) if name not in value]
        properties = schema.get("properties", {})
        for name in value.keys() & properties.keys():
            found += schema_errors(value[name], properties[name], document, f"{where}.{name}")
    if kind == "array" and "items" in schema:
        for number, item in enumerate(value):
            found += schema_errors(item, schema["items"], document, f"{where}[{number}]")
    return found


PARAMETERS = {
    "bucket": BUCKET,
    "key": "app/build-2.bin",
    "user": "root",
    "action": "s3:GetObject",
    "resource": "arn:aws:s3:::a/b",
}


def test_answers_are_as_the_openapi_file_says(server: Server) -> None:
    document = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())
    blob = server.admin(f"/api/v1/explain?bucket={BUCKET}&key=app/build-2.bin")["blobs"][0]["id"]
    request = server.admin("/api/v1/requests")["requests"][-1]["request_id"]
    server.admin("/api/v1/users/gc", "PUT", body={"groups": []})
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    server.admin("/api/v1/policies/gc", "PUT", body={"Statement": statement})
    server.admin("/api/v1/groups/gc", "PUT")
    asked = 0
    for path, item in document["paths"].items():
        # A sign-in is for browsers, and answers with addresses and pages.
        if "get" not in item or "application/json" not in item["get"]["responses"].get("200", {}).get("content", {}):
            continue
        wanted = [found["name"] for found in item["get"].get("parameters", []) if found["required"]]
        # Of a bucket or of a user: one of them is needed, and neither always.
        wanted += ["bucket"] if path.endswith("/quota") else []
        query = "&".join(f"{name}={(PARAMETERS | {'blob': blob})[name]}" for name in wanted)
        element = request if "requests" in path else "gc"
        answer = server.admin(f"{path.replace('{name}', element)}?{query}")
        schema = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema_errors(answer, schema, document) == [], path
        asked += 1
    assert asked >= 22
    assert schema_errors({"allowed": 1}, {"type": "object", "required": ["x"]}, document) == ["$.x is missing"]


def test_keys_come_in_pages_with_their_form_and_cost(server: Server) -> None:
    seen: list[str] = []
    after = ""
    for _ in range(10):
        page = server.admin(f"/api/v1/objects?bucket={BUCKET}&prefix=keys/&limit=10&after={after}")
        assert len(page["entries"]) <= 10
        seen += [entry["key"] for entry in page["entries"]]
        if (after := page["next"]) is None:
            break
    assert seen == [f"keys/{number:02}" for number in range(25)]
    top = server.admin(f"/api/v1/objects?bucket={BUCKET}&delimiter=/")["entries"]
    assert top == [{"prefix": "app/"}, {"prefix": "keys/"}]
    entries = server.admin(f"/api/v1/objects?bucket={BUCKET}&prefix=app/")["entries"]
    assert [entry["form"] for entry in entries][1:] == ["delta", "delta"]
    assert entries[2]["stored_bytes"] < entries[2]["size"] / 5
    for wrong in ("limit=0", "limit=1001", "limit=x"):
        assert server.admin_status(f"/api/v1/objects?bucket={BUCKET}&{wrong}") == 400
    assert server.admin_status("/api/v1/objects?bucket=nowhere") == 404


@pytest.mark.parametrize("bucket", [BUCKET, SEALED])
def test_a_map_accounts_for_every_byte_and_names_the_base(server: Server, bucket: str) -> None:
    size = len(builds()[0])
    for cells in (1, 7, 256, 1024):
        told = server.admin(f"/api/v1/map?bucket={bucket}&key=app/build-2.bin&cells={cells}")
        kinds = ("copied", "changed", "added", "compressed", "raw", "opened", "foreign")
        sums = {kind: sum(cell.get(kind, 0) for cell in told["cells"]) for kind in kinds}
        assert len(told["cells"]) <= cells
        assert sum(sums.values()) == size == told["shown_bytes"]
        assert all(sum(cell.get(kind, 0) for kind in kinds) == cell["len"] for cell in told["cells"])
        assert sums["copied"] >= size - 31_000
        assert 29_000 <= sums["added"] <= 31_000
        assert sum(cell["stored_bytes"] for cell in told["cells"]) <= told["stored_bytes"]
    new = [cell for cell in told["cells"] if cell.get("added", 0) * 2 > cell["len"]]
    assert all(99_000 <= cell["offset"] <= 131_000 for cell in new), "the new bytes lie where they were written"
    cost = sum(cell["stored_bytes"] for cell in told["cells"] if 99_000 <= cell["offset"] <= 131_000)
    assert cost * 10 >= told["stored_bytes"] * 9, "and cost what the object costs"
    [base] = told["bases"]
    assert base["keys"] == ["app/build-0.bin"]
    assert base["copied_bytes"] == sums["copied"]
    assert base["fan_in"] == 2
    assert base["needed_by"] == ["app/build-1.bin"]


def test_reads_and_conversions_are_told_and_conversions_outlive_the_process(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    content = b"".join(b"%08d a line that goes on\n" % (number * 7919) for number in range(9000))
    s3.put_object(Bucket="delta-00", Key="read", Body=content)
    s3.put_object(Bucket="delta-00", Key="not read", Body=b"x" * 9000)
    for _ in range(3):
        s3.get_object(Bucket="delta-00", Key="read")["Body"].read()
    s3.head_object(Bucket="delta-00", Key="read")
    told = server.admin("/api/v1/explain?bucket=delta-00&key=read")
    assert sum(hour["count"] for hour in told["reads"]) == 3, "a HEAD and this call read nothing"
    assert [blob["conversions"] for blob in told["blobs"]] == [[]]
    assert server.admin("/api/v1/explain?bucket=delta-00&key=not%20read")["reads"] == []
    before = told["stored_bytes"]
    for compression in ("off", "zstd"):
        server.run("convert", "s3://delta-00", "--compression", compression)
    told = server.admin("/api/v1/explain?bucket=delta-00&key=read")
    assert sum(hour["count"] for hour in told["reads"]) == 3, "nor does a conversion, and the version is the same one"
    [conversions] = [blob["conversions"] for blob in told["blobs"]]
    assert [one["occasion"] for one in conversions] == ["asked", "asked"]
    assert [one["form"] for one in conversions] == ["zstd", "raw"]
    assert conversions[0]["stored_bytes"] == before
    assert conversions[1]["stored_bytes"] >= len(content)
    assert "(asked); was raw in" in server.run("explain", "s3://delta-00/read").stdout
    server.stop()
    server.start()
    again = server.admin("/api/v1/explain?bucket=delta-00&key=read")
    assert [blob["conversions"] for blob in again["blobs"]] == [conversions]
    assert again["reads"] == [], "reads are counted by the process"


def test_candidates_of_compressed_content_are_told(new_server: NewServer) -> None:
    server = new_server(defaults={"effort": "auto"}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for version in range(2):
        s3.put_object(Bucket="delta-00", Key=f"app-{version}.tar.gz", Body=tar_gz(2, 20, 100_000, version))
    server.settle(120)
    both = [server.admin(f"/api/v1/explain?bucket=delta-00&key=app-{version}.tar.gz") for version in range(2)]
    # Whichever came later to the converter differs from the other.
    [told] = [one for one in both if one["bases"]]
    assert {coding for blob in told["blobs"] for coding in blob["segments_by_coding"]} == {"view"}
    candidates = [one for blob in told["blobs"] for choice in blob["choices"] for one in choice["candidates"]]
    assert [(one["key"], one["chosen"]) for one in candidates] == [(told["bases"][0], True)]
    assert candidates[0]["overlap_permille"] > 500


def test_containers_and_streams_inside_an_object_are_found(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    content = layer(4, 3, 0)
    for bucket in (BUCKET, SEALED):
        s3.put_object(Bucket=bucket, Key="layer.tar.gz", Body=content)
        told = server.admin(f"/api/v1/streams?bucket={bucket}&key=layer.tar.gz", "POST")
        assert [stream["container"] for stream in told["streams"]] == ["gzip"]
        assert told["containers"]["gzip"]["streams"] == 1
        assert told["containers"]["gzip"]["compressed_bytes"] + told["outside_bytes"] == len(content) == told["bytes"]
        assert told["nested"]["zip"]["streams"] == told["streams"][0]["nested"] > 2
    assert server.admin(f"/api/v1/streams?bucket={BUCKET}&key=keys/01", "POST")["streams"] == []
    printed = server.run("inspect", f"s3://{BUCKET}/layer.tar.gz").stdout
    assert "gzip: 1 streams" in printed
    assert "inside streams, zip: " in printed
    assert server.admin_status(f"/api/v1/streams?bucket={BUCKET}&key=nothing", "POST") == 404
    reader = Browser(server, READ_TOKEN)
    assert reader.call(f"/api/v1/streams?bucket={BUCKET}&key=keys/01", "POST", {}, reader.halves())[0] == 403


def test_a_version_says_what_it_says_of_itself(server: Server) -> None:
    told = server.admin(f"/api/v1/object?bucket={SEALED}&key=app/build-1.bin")
    assert told["metadata"] == {"build": "yes"}
    assert server.admin(f"/api/v1/object?bucket={BUCKET}&key=keys/03")["tags"] == {"colour": "blue"}
    assert server.admin_status(f"/api/v1/object?bucket={BUCKET}&key=nothing") == 404


def test_versions_of_one_key_are_listed_and_no_others(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-01")
    s3.put_bucket_versioning(Bucket="delta-01", VersioningConfiguration={"Status": "Enabled"})
    for content in (b"a", b"b"):
        s3.put_object(Bucket="delta-01", Key="k", Body=content)
    s3.put_object(Bucket="delta-01", Key="k2", Body=b"c")
    s3.delete_object(Bucket="delta-01", Key="k")
    told = server.admin("/api/v1/versions?bucket=delta-01&key=k")
    assert [version.get("delete_marker", False) for version in told["versions"]] == [True, False, False]
    assert [version["latest"] for version in told["versions"]] == [True, False, False]
    assert server.admin("/api/v1/versions?bucket=delta-01&key=k&limit=2")["more"]


def test_the_dry_run_of_a_lifecycle_lists_what_the_job_removes(new_server: NewServer) -> None:
    server = new_server(lifecycle={"day": "1s"}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="rules")
    assert server.admin("/api/v1/lifecycle?bucket=rules")["rules"] == 0
    for number in range(12):
        s3.put_object(Bucket="rules", Key=f"old/{number:02}", Body=b"x")
    s3.put_object(Bucket="rules", Key="kept", Body=b"x")
    server.admin("/api/v1/jobs/lifecycle?action=pause", "POST")
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket="rules", LifecycleConfiguration={"Rules": [rule]})
    until(lambda: len(server.admin("/api/v1/lifecycle?bucket=rules")["due"]) == 12, 20, "the day is over")
    page = server.admin("/api/v1/lifecycle?bucket=rules&limit=5")
    assert [due["key"] for due in page["due"]] == [f"old/{number:02}" for number in range(5)]
    assert {due["what"] for due in page["due"]} == {"current"}
    rest = server.admin(f"/api/v1/lifecycle?bucket=rules&after={page['next']}")
    assert [due["key"] for due in rest["due"]] == [f"old/{number:02}" for number in range(5, 12)]
    assert len(s3.list_objects_v2(Bucket="rules")["Contents"]) == 13, "nothing was removed"


class Browser:
    """The half of a browser that matters here: a cookie, the other half of the session, and headers."""

    def __init__(self, server: Server, token: str) -> None:
        self.base = f"http://127.0.0.1:{server.admin_port}"
        status, headers, told = self.call("/api/v1/session", "POST", {"token": token})
        assert status == 200
        self.set_cookie = headers["set-cookie"]
        self.cookie = self.set_cookie.split(";")[0]
        self.key = json.loads(told)["key"]

    def call(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, sent | (headers or {}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()

    def halves(self) -> dict[str, str]:
        """What a page of the console sends."""
        return {"Cookie": self.cookie, "X-Deltaweir-Session": self.key}


def test_a_session_takes_both_halves_and_no_other_origin(server: Server) -> None:
    browser = Browser(server, server.admin_token)
    assert "HttpOnly" in browser.set_cookie
    assert "SameSite=Strict" in browser.set_cookie
    assert browser.call("/api/v1/stats", headers=browser.halves())[0] == 200
    for part in ({"Cookie": browser.cookie}, {"X-Deltaweir-Session": browser.key}, {}):
        assert browser.call("/api/v1/stats", headers=part)[0] == 401
    cross = browser.halves() | {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}
    assert browser.call("/api/v1/stats", headers=cross)[0] == 403
    reader = Browser(server, READ_TOKEN)
    assert reader.call("/api/v1/gc", "POST", {}, reader.halves())[0] == 403
    assert browser.call("/api/v1/gc", "POST", {}, browser.halves())[0] == 200
    assert browser.call("/api/v1/session", "DELETE", headers=browser.halves())[0] == 200
    assert browser.call("/api/v1/stats", headers=browser.halves())[0] == 401
    assert browser.call("/api/v1/session", "POST", {"token": "x" * 32})[0] == 401


def through_the_door(server: Server, method: str, path: str, data: bytes | None) -> dict[str, str]:
    """Headers of a request for S3 that was signed for the admin listener's address."""
    s3: S3Client = s3_client(f"http://127.0.0.1:{server.admin_port}")
    request = AWSRequest(method, f"http://127.0.0.1:{server.admin_port}{path}", data=data)
    S3SigV4Auth(s3._request_signer._credentials, "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def test_the_door_to_s3_takes_a_session_and_a_signature_and_runs_nothing(server: Server) -> None:
    browser = Browser(server, READ_TOKEN)
    path = f"/{BUCKET}/page.html"
    s3_client(server.endpoint).put_object(
        Bucket=BUCKET, Key="page.html", Body=b"<script>alert(1)</script>", ContentType="text/html"
    )
    signed = through_the_door(server, "GET", path, None)
    status, headers, content = browser.call(f"/s3{path}", headers=signed | browser.halves())
    assert (status, content) == (200, b"<script>alert(1)</script>")
    assert "sandbox" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert browser.call(f"/s3{path}", headers=signed)[0] == 401, "a signature alone"
    assert browser.call(f"/s3{path}", headers=browser.halves())[0] == 403, "a session alone"
    assert browser.call(f"/s3{path}", headers=signed | {"Cookie": browser.cookie})[0] == 401, "as a link would"


def test_the_console_is_small_and_loads_nothing_from_elsewhere(server: Server) -> None:
    browser = Browser(server, READ_TOKEN)
    seen: dict[str, bytes] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        status, headers, content = browser.call(path)
        assert status == 200, path
        seen[path] = content
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert not any(word in policy for word in ("http:", "https:", "*", "data:"))
        waiting += [found for found in references(path, content.decode()) if found not in {*seen, *waiting}]
    assert len(seen) >= 15
    assert sum(map(len, seen.values())) < 300_000
    folder = ROOT / "proxy" / "src" / "admin" / "console"
    names = {f"/console/{file.relative_to(folder)}" for file in folder.rglob("*.*") if file.suffix != ".md"}
    assert names == (seen.keys() - {"/"}) | {"/console/index.html"}, "every file is served and used"


def references(path: str, text: str) -> list[str]:
    """Paths that a file of the console names."""
    folder = Path("/console") if path == "/" else Path(path).parent
    found = re.findall(r"""(?:src|href)="(/console/[^"]+)\"""", text) if path == "/" else []
    if path.endswith(".js"):
        found += [str((folder / name).resolve()) for name in re.findall(r"""from "(\.[^"]+)\"""", text)]
    outside = re.findall(r"""(?:src|href|from|import|url\()\s*=?\s*["'(]?(https?:[^"')]+)""", text)
    assert outside == []
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|style=", text), path
    return found


def test_the_audit_log_comes_in_pages_with_the_newest_line_first(server: Server) -> None:
    for number in range(7):
        server.admin(f"/api/v1/groups/audited-{number}", "PUT")
    told = [json.loads(line) for line in server.run("audit", "search", "--user", "token").stdout.splitlines()]
    lines: list[Any] = []
    before = ""
    for _ in range(200):
        page = server.admin(f"/api/v1/audit?user=token&limit=3&before={before}")
        assert len(page["lines"]) <= 3
        lines += page["lines"]
        if (before := page["next"]) is None:
            break
    assert lines == told[::-1], "the same lines as the files have, each once"
    one = server.admin("/api/v1/audit?action=/api/v1/groups/audited-3")["lines"]
    assert [(line["method"], line["status"]) for line in one] == [("PUT", 200)]
    assert server.admin("/api/v1/audit?user=nobody&since=1h")["lines"] == []
    assert server.admin("/api/v1/audit?until=1h")["lines"] == []
    for wrong in ("limit=0", "limit=1001", "before=x", "since=yesterday"):
        assert server.admin_status(f"/api/v1/audit?{wrong}") == 400, wrong


def test_no_word_of_the_console_takes_the_place_of_another() -> None:
    text = (ROOT / "proxy" / "src" / "admin" / "console" / "words.js").read_text()
    bare = re.sub(r'`[^`]*`|"(?:[^"\\\n]|\\.)*"(?!:)', "", text)
    levels: list[set[str]] = [set()]
    twice: list[str] = []
    for found in re.finditer(r'(?:^|[{,])\s*(?:"([^"]+)"|([\w$]+)):|[{}]', bare, re.MULTILINE):
        name = found[1] or found[2]
        if found[0].strip().startswith("{"):
            levels.append(set())
        if found[0].strip() == "}":
            levels.pop()
        if name and name in levels[-1]:
            twice.append(name)
        if name:
            levels[-1].add(name)
    assert twice == []
    assert len(levels) == 1, "every brace has its other one"
