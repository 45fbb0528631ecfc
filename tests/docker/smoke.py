"""The image and the compose file, built and run for real. Not collected by name: `make docker-test` asks for it.

The Dockerfile's stage `build` compiles the image's binary, over an image with this machine's Rust or the one that
`DELTAWEIR_TEST_BUILDER_IMAGE` names; a quarter of an hour. `DELTAWEIR_TEST_BINARY`, a binary that was built already,
replaces that stage where only what is around it is to be tested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import BotoCoreError, ClientError

from docker.container import HARDENED, Container, fetch
from docker.engine import Engine
from outside.clients import s3_client
from outside.content import MIB, noise, release
from outside.metrics import Metrics
from outside.server import ROOT, free_port, until
from outside.wire import Connection, signed

IMAGE = "deltaweir-test/server"
RUNTIME = "deltaweir-test/debian"
UID = 10001
PROGRAM = "/usr/local/bin/deltaweir"
LAYERS_MAX = 3
BUILDER_IMAGE = os.environ.get("DELTAWEIR_TEST_BUILDER_IMAGE", "deltaweir-test/rust")
GIVEN_BINARY = os.environ.get("DELTAWEIR_TEST_BINARY")
COMMIT = "c0ffee"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine; one that was started for the test ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="dw-docker-"))
    started = Engine(folder)
    try:
        yield started.start()
    finally:
        started.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The image under test, built from the repository's Dockerfile over base images made here."""
    engine.run("tests/docker/base-images.sh", *([GIVEN_BINARY] if GIVEN_BINARY else []), timeout_s=900)
    arguments = {"RUNTIME_IMAGE": RUNTIME, "VERSION": "9.8.7", "DELTAWEIR_COMMIT": COMMIT}
    arguments |= {"BINARY": "deltaweir-test/binary"} if GIVEN_BINARY else {"BUILDER_IMAGE": BUILDER_IMAGE}
    flags = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    where = ("--network=host", "--file=docker/Dockerfile", f"--tag={IMAGE}")
    engine.docker("build", *where, *flags, ".", timeout_s=3600)
    return IMAGE


@pytest.fixture
def new_container(engine: Engine, image: str) -> Iterator[Callable[[], Container]]:
    """Containers that end with the test, and their volumes with them."""
    made: list[Container] = []

    def make() -> Container:
        made.append(Container(engine, image, f"deltaweir-test-{uuid.uuid4().hex[:8]}"))
        return made[-1].start()

    yield make
    for container in made:
        container.remove_everything()


def test_the_image_says_how_it_is_to_be_run(engine: Engine, image: str) -> None:
    config = engine.inspect(image)["Config"]
    assert config["User"] == f"{UID}:{UID}"
    assert config["Entrypoint"] == ["deltaweir"]
    assert set(config["Volumes"]) == {"/data"}
    assert set(config["ExposedPorts"]) == {"9000/tcp", "9001/tcp"}
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "deltaweir-ready"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["licenses"]) == ("deltaweir", "Apache-2.0")
    assert (labels["version"], labels["revision"]) == ("9.8.7", COMMIT)


def test_the_image_adds_few_small_layers_to_its_base(engine: Engine, image: str) -> None:
    ours, base = engine.inspect(image), engine.inspect(RUNTIME)
    assert len(ours["RootFS"]["Layers"]) - len(base["RootFS"]["Layers"]) <= LAYERS_MAX
    run = ("run", "--rm", "--network=none", "--entrypoint=stat", image)
    binary = int(engine.docker(*run, "--format=%s", PROGRAM))
    assert ours["Size"] - base["Size"] < binary + MIB


def test_without_credentials_it_does_not_listen_for_others(engine: Engine, image: str) -> None:
    done = engine.run("docker", "run", "--rm", "--network=none", *HARDENED, image, check=False)
    assert done.returncode == 1
    assert "DELTAWEIR_SECRET_ACCESS_KEY" in done.stdout


def test_a_second_release_is_stored_as_a_difference_and_read_back(new_container: Callable[[], Container]) -> None:
    container = new_container()
    s3 = container.client()
    s3.create_bucket(Bucket="releases")
    releases = {f"app-1.{version}.bin": release(7, 4 * MIB, version) for version in range(2)}
    for key, content in releases.items():
        s3.put_object(Bucket="releases", Key=key, Body=content)
    for key, content in releases.items():
        assert s3.get_object(Bucket="releases", Key=key)["Body"].read() == content
    head = s3.head_object(Bucket="releases", Key="app-1.1.bin")["ResponseMetadata"]["HTTPHeaders"]
    assert head["x-deltaweir-form"] == "delta"
    assert int(head["x-deltaweir-stored-bytes"]) < 4 * MIB // 10
    code, text = container.execute("deltaweir", "stats", "--json")
    assert (code, json.loads(text)["buckets"][0]["name"]) == (0, "releases")


def test_metrics_are_given_to_who_has_the_token(new_container: Callable[[], Container]) -> None:
    container = new_container()
    container.client().create_bucket(Bucket="bucket")
    assert container.metrics().total("deltaweir_http_requests_total", op="CreateBucket") == 1
    if not GIVEN_BINARY:
        assert container.metrics().total("deltaweir_build_info", commit=COMMIT) == 1, "the stage was told its commit"
    assert container.admin("/metrics", token=None)[0] == 401
    assert container.admin("/readyz", token=None)[0] == 200


def test_a_new_container_on_the_volume_has_the_data(new_container: Callable[[], Container]) -> None:
    container = new_container()
    content = release(3, 2 * MIB, 0)
    container.client().create_bucket(Bucket="kept")
    container.client().put_object(Bucket="kept", Key="k", Body=content)
    assert container.stop() == 0, container.log()
    container.remove()
    container.start()
    assert container.client().get_object(Bucket="kept", Key="k")["Body"].read() == content


def test_a_second_container_on_the_volume_refuses_to_start(new_container: Callable[[], Container]) -> None:
    first = new_container()
    loopback = ("--env=DELTAWEIR_LISTEN=127.0.0.1:9000", "--env=DELTAWEIR_ADMIN_LISTEN=127.0.0.1:9001")
    where = ("--rm", "--network=none", f"--volume={first.volume}:/data")
    second = first.engine.run("docker", "run", *where, *loopback, *HARDENED, first.image, check=False, timeout_s=60)
    assert second.returncode == 1
    assert "in use" in second.stdout
    assert first.health() == "healthy"


def test_sigterm_lets_an_upload_end_and_health_says_so(new_container: Callable[[], Container]) -> None:
    container = new_container()
    container.client().create_bucket(Bucket="bucket")
    body = noise(1, 6 * MIB)
    request = signed(f"127.0.0.1:{container.port}", "PUT", "/bucket/k", body=body)
    with Connection(container.port) as connection:
        connection.send(request[: len(request) // 2])
        until(
            lambda: container.metrics().total("deltaweir_http_inflight", op="PutObject") == 1,
            20,
            "the upload is under way",
        )
        stopping = subprocess.Popen(["docker", "stop", container.name], env=container.engine.variables())
        until(lambda: container.execute("deltaweir-ready")[0] == 1, 20, "the health check says no")
        assert container.state()["Running"]
        connection.send(request[len(request) // 2 :])
        answer = connection.answer("PUT")
    assert answer is not None
    assert answer.status == 200
    assert stopping.wait(60) == 0
    assert container.state()["ExitCode"] == 0, container.log()
    container.remove()
    container.start()
    assert container.client().get_object(Bucket="bucket", Key="k")["Body"].read() == body


def test_it_runs_as_nobody_in_particular_and_writes_only_to_its_volume(new_container: Callable[[], Container]) -> None:
    container = new_container()
    _, status = container.execute("cat", "/proc/1/status")
    assert re.search(rf"^Name:\s+deltaweir$.*^Uid:\s+{UID}\s+{UID}\s", status, re.MULTILINE | re.DOTALL), status
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), status
    for place in ("/probe", "/tmp/probe", "/usr/local/bin/probe"):
        code, said = container.execute("touch", place)
        assert code != 0, place
        assert "Read-only file system" in said or "Permission denied" in said, said
    assert container.execute("touch", "/data/probe") == (0, "")
    assert container.execute("stat", "--format=%u %a", "/data") == (0, f"{UID} 700")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The repository's docker/ and grafana/ somewhere else, so that secrets of this checkout stay what they are."""
    for folder in ("docker", "grafana"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("secrets", "__pycache__"))
    return tmp_path


def compose(engine: Engine) -> list[str]:
    """Compose: the client's plugin, or the program of its own."""
    plugin = engine.run("docker", "compose", "version", check=False).returncode == 0
    return ["docker", "compose"] if plugin else ["docker-compose"]


def test_every_file_the_compose_file_mounts_is_there(engine: Engine, project: Path) -> None:
    file = project / "docker" / "compose.yaml"
    model: dict[str, Any] = yaml.safe_load(engine.run(*compose(engine), "--file", str(file), "config").stdout)
    assert set(model["services"]) == {"deltaweir", "prometheus", "grafana"}
    binds = {
        volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
        for service in model["services"].values()
        for volume in service["volumes"]
    } - set(model["volumes"])
    assert len(binds) == 5
    assert [bind for bind in binds if not Path(bind).exists()] == []
    assert {Path(secret["file"]).parent for secret in model["secrets"].values()} == {file.parent / "secrets"}
    grafana = (project / "grafana" / "README.md").read_text()
    targets = re.findall(r"at `(/[\w/]+)`|\s`(/var/lib/grafana/dashboards)`", grafana)
    for target in (one or other for one, other in targets):
        assert f":{target}:ro" in file.read_text(), target


def test_prometheus_and_the_server_run_together(engine: Engine, image: str, project: Path) -> None:
    ports = {name: str(free_port()) for name in ("S3_PORT", "ADMIN_PORT", "PROMETHEUS_PORT")}
    name = f"deltaweirtest{uuid.uuid4().hex[:8]}"
    variables = ports | {
        "COMPOSE_PROJECT_NAME": name,
        "DELTAWEIR_IMAGE": image,
        "PROMETHEUS_IMAGE": "deltaweir-test/prometheus",
    }
    up = project / "docker" / "up.sh"
    secrets = project / "docker" / "secrets"
    prometheus = f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}/api/v1"
    try:
        engine.run(str(up), "deltaweir", "prometheus", variables=variables)
        made = {path.name: path.read_text() for path in secrets.iterdir()}
        assert oct(secrets.stat().st_mode & 0o777) == "0o700"

        s3 = s3_client(f"http://127.0.0.1:{ports['S3_PORT']}", made["access_key_id"], made["secret_access_key"])
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="k", Body=b"through the published port")
        assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"through the published port"

        def scraped() -> bool:
            status, text = fetch(f"{prometheus}/query?query=deltaweir_build_info")
            return status == 200 and len(json.loads(text)["data"]["result"]) == 1

        until(scraped, 60, "Prometheus has scraped the server", interval_s=0.5)
        groups = json.loads(fetch(f"{prometheus}/rules")[1])["data"]["groups"]
        assert sum(len(group["rules"]) for group in groups) >= 12

        engine.run(str(up), "deltaweir", "prometheus", variables=variables)
        assert {path.name: path.read_text() for path in secrets.iterdir()} == made, (
            "a second start makes no new secrets"
        )
    finally:
        file = str(project / "docker" / "compose.yaml")
        down = [*compose(engine), "--project-name", name, "--file", file, "down", "--volumes"]
        engine.run(*down, variables=variables, check=False)


CLUSTER_IMAGES = {f"{name.upper()}_IMAGE": f"deltaweir-test/{name}" for name in ("postgres", "nginx", "store")}


def test_the_cluster_file_is_valid_and_keeps_its_replicas_apart(engine: Engine, project: Path) -> None:
    file = project / "docker" / "compose.cluster.yaml"
    model: dict[str, Any] = yaml.safe_load(engine.run(*compose(engine), "--file", str(file), "config").stdout)
    replicas = [service for name, service in model["services"].items() if name.startswith("replica-")]
    assert len(replicas) == 3
    assert set(model["services"]) >= {"balancer", "postgres", "store"}
    for name, service in model["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
    data = {volume if isinstance(volume, str) else volume["source"] for one in replicas for volume in one["volumes"]}
    assert len({source for source in data if "data-" in source}) == 3, "each replica has a volume of its own"
    servers = re.findall(r"server (replica-\d):9000", (project / "docker" / "nginx.conf").read_text())
    assert set(servers) == {name for name in model["services"] if name.startswith("replica-")}


def test_three_replicas_run_over_a_database_and_a_store(engine: Engine, image: str, project: Path) -> None:
    ports = {name: str(free_port()) for name in ("S3_PORT", "ADMIN_PORT_1", "ADMIN_PORT_2", "ADMIN_PORT_3")}
    name = f"deltaweirtest{uuid.uuid4().hex[:8]}"
    variables = ports | CLUSTER_IMAGES | {"COMPOSE_PROJECT_NAME": name, "DELTAWEIR_IMAGE": image}
    file = project / "docker" / "compose.cluster.yaml"
    here = [*compose(engine), "--project-name", name, "--file", str(file)]
    try:
        engine.run(str(project / "docker" / "up.sh"), "cluster", variables=variables)
        secrets = {path.name: path.read_text() for path in (project / "docker" / "secrets").iterdir()}
        s3 = s3_client(f"http://127.0.0.1:{ports['S3_PORT']}", secrets["access_key_id"], secrets["secret_access_key"])

        def answered() -> bool:
            try:
                s3.list_buckets()
            except (BotoCoreError, ClientError):
                return False
            return True

        until(answered, 60, "the cluster answers through nginx", interval_s=0.5)
        s3.create_bucket(Bucket="bucket")
        contents = {f"app-1.{version}.bin": release(5, 2 * MIB, version) for version in range(6)}
        for key, content in contents.items():
            s3.put_object(Bucket="bucket", Key=key, Body=content)

        def served() -> list[float]:
            """Uploads that each replica has taken."""
            pages = [
                fetch(f"http://127.0.0.1:{ports[port]}/metrics", secrets["admin_token"])[1]
                for port in ports
                if port != "S3_PORT"
            ]
            return [Metrics.parse(page).total("deltaweir_http_requests_total", op="PutObject") for page in pages]

        assert served() == [2, 2, 2], "nginx hands out requests in turn"
        engine.run(*here, "kill", "replica-2", variables=variables)
        for key, content in contents.items():
            assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == content, "read with a replica gone"
        engine.run(*here, "restart", "postgres", variables=variables)
        until(answered, 60, "the replicas have found the database again", interval_s=0.5)
        assert s3.get_object(Bucket="bucket", Key="app-1.0.bin")["Body"].read() == contents["app-1.0.bin"]
    except AssertionError as error:
        logs = engine.run(*here, "logs", "--tail=30", variables=variables, check=False).stdout
        raise AssertionError(f"{error}\n{logs}") from error
    finally:
        engine.run(*here, "down", "--volumes", variables=variables, check=False)
