"""The chart helm/deltaweir: linted, rendered with several value files, held against Kubernetes' own schemas, and its
configuration against the server's `config check`. No cluster runs here."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from outside.server import BINARY, ROOT

pytestmark = pytest.mark.long

CHART = ROOT / "helm" / "deltaweir"
VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
KUBERNETES = ("1.25.0", "1.37.0")
"""The oldest version that the chart allows, and the newest whose schemas are at hand."""
SECRETS = "/etc/deltaweir/secrets"
DEFINED_ELSEWHERE = {"ServiceMonitor", "ExternalSecret"}
"""Kinds of operators, which bring the schemas."""


@pytest.fixture(scope="module")
def tools() -> Path:
    """The folder with helm and the validator, installed when they are missing."""
    subprocess.run([ROOT / "release/tools.sh", "python", "helm", "schemas"], check=True)
    return Path(os.environ.get("RELEASE_TOOLS", ROOT / ".tools" / "release"))


def helm(tools: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One call of helm."""
    return subprocess.run([tools / "bin/helm", *arguments], capture_output=True, text=True, timeout=60, check=False)


def render(tools: Path, values: Path, version: str = KUBERNETES[1], *more: str) -> list[dict[str, Any]]:
    """The manifests that helm makes of the chart."""
    where = ("template", "weir", CHART, "--namespace", "storage", "--kube-version", version, "--values", values)
    done = helm(tools, *where, *more)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one manifest of a kind."""
    (found,) = [one for one in manifests if one["kind"] == kind]
    return found


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_lint_has_nothing_to_say(tools: Path, values: Path) -> None:
    done = helm(tools, "lint", "--strict", "--kube-version", KUBERNETES[1], "--values", values, CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert len(VALUES) >= 5


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_manifests_keep_to_kubernetes_schemas(tools: Path, tmp_path: Path, values: Path, version: str) -> None:
    known = [one for one in render(tools, values, version) if one["kind"] not in DEFINED_ELSEWHERE]
    path = tmp_path / "manifests.yaml"

    def verdict() -> subprocess.CompletedProcess[str]:
        path.write_text(yaml.safe_dump_all(known))
        command: list[str | Path] = [tools / "python/bin/kubernetes-validate", "--strict", "-k", version, path]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    done = verdict()
    assert done.returncode == 0, done.stdout + done.stderr
    of_kind(known, "Deployment")["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert verdict().returncode != 0, "the check refuses nothing"


def definitions(tools: Path) -> dict[tuple[str, str], Any]:
    """The schemas of the operators' kinds, by API version and kind."""
    found: dict[tuple[str, str], Any] = {}
    for path in (tools / "schemas").glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = closed(schema, top=True)
    return found


def closed(schema: Any, top: bool = False) -> Any:
    """The schema with unknown fields refused, as an API server drops them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: closed(one) for name, one in schema.items()}
    if isinstance(properties := schema.get("properties"), dict):
        kept["properties"] = {name: closed(one) for name, one in properties.items()}
        if top:
            kept["properties"]["metadata"] = {"type": "object"}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    return kept


@pytest.mark.parametrize("kind", sorted(DEFINED_ELSEWHERE))
def test_operators_kinds_keep_to_their_definitions(tools: Path, tmp_path: Path, kind: str) -> None:
    everything = next(path for path in VALUES if path.stem == "everything")
    manifest = of_kind(render(tools, everything), kind)
    (tmp_path / "schema.json").write_text(json.dumps(definitions(tools)[manifest["apiVersion"], kind]))
    instance = tmp_path / "instance.json"

    def verdict() -> subprocess.CompletedProcess[str]:
        instance.write_text(json.dumps(manifest))
        command: list[str | Path] = [tools / "python/bin/python", "-W", "ignore", "-m", "jsonschema"]
        command += ["--instance", instance, tmp_path / "schema.json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    done = verdict()
    assert done.returncode == 0, done.stdout + done.stderr
    manifest["spec"]["targt"] = {}
    assert verdict().returncode == 1, "the check refuses nothing"


def secret(name: str) -> str:
    """Something that has the form of this key of the secret."""
    if name == "google-key":
        key = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA"], check=True, capture_output=True, text=True)
        account = {"client_email": "weir@example.com", "private_key": key.stdout, "private_key_id": "1"}
        return json.dumps(account | {"type": "service_account"})
    if name in ("kek", "azure-key"):
        return "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    return f"{name}-0123456789-0123456789"


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_server_takes_the_configuration(tools: Path, tmp_path: Path, values: Path) -> None:
    manifests = render(tools, values)
    text = of_kind(manifests, "ConfigMap")["data"]["deltaweir.toml"]
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    mounts = {one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert {SECRETS, "/etc/deltaweir/deltaweir.toml", "/data", "/tmp"} <= mounts
    for name in set(re.findall(rf"file:{SECRETS}/([\w-]+)", text)):
        (tmp_path / name).write_text(secret(name))
        (tmp_path / name).chmod(0o600)
    if "/etc/deltaweir/tls" in text:
        assert "/etc/deltaweir/tls" in mounts
        pem = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]
        pem += ["/CN=weir", "-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
        subprocess.run(pem, check=True, capture_output=True)
    (tmp_path / "token").write_text("token")
    text = text.replace(SECRETS, str(tmp_path)).replace("/etc/deltaweir/tls", str(tmp_path))
    text = text.replace("/var/run/secrets/eks.amazonaws.com/serviceaccount", str(tmp_path))
    text = text.replace('data = "/data"', f'data = "{tmp_path}/data"')
    given = {one["name"]: "a-value-of-the-environment" for one in pod["containers"][0].get("env", [])}

    def check(config: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "deltaweir.toml"
        path.write_text(config)
        path.chmod(0o600)
        command = [str(BINARY), "config", "check", "--config", str(path)]
        return subprocess.run(
            command, env={"PATH": os.environ["PATH"]} | given, capture_output=True, text=True, timeout=60, check=False
        )

    done = check(text)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    assert check(text.replace("catalog_connections", "catalog_conections")).returncode == 1, "the check refuses nothing"


def test_pods_may_do_little_and_go_one_after_another(tools: Path) -> None:
    everything = next(path for path in VALUES if path.stem == "everything")
    manifests = render(tools, everything)
    deployment = of_kind(manifests, "Deployment")["spec"]
    assert "replicas" not in deployment, "the autoscaler decides"
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    container = pod["containers"][0]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > 60 + pause
    assert {probe: container[probe]["httpGet"]["scheme"] for probe in container if probe.endswith("Probe")} == {
        "startupProbe": "HTTPS",
        "livenessProbe": "HTTPS",
        "readinessProbe": "HTTPS",
    }
    assert of_kind(manifests, "HorizontalPodAutoscaler")["spec"]["minReplicas"] == 2
    assert of_kind(manifests, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "25%"
    hosts = [rule["host"] for rule in of_kind(manifests, "Ingress")["spec"]["rules"]]
    assert hosts == ["s3.example.com", "*.s3.example.com"]


def test_selectors_and_names_fit_together(tools: Path) -> None:
    everything = next(path for path in VALUES if path.stem == "everything")
    manifests = render(tools, everything)
    labels = of_kind(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    services = [one for one in manifests if one["kind"] == "Service"]
    budget = of_kind(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    for selector in [one["spec"]["selector"] for one in services] + [budget]:
        assert selector
        assert selector.items() <= labels.items()
    monitor = of_kind(manifests, "ServiceMonitor")["spec"]
    watched = [
        one for one in services if monitor["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
    ]
    assert [one["metadata"]["name"] for one in watched] == ["weir-deltaweir-admin"]
    assert monitor["endpoints"][0]["port"] == watched[0]["spec"]["ports"][0]["name"]
    secret = of_kind(manifests, "ExternalSecret")["spec"]
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "secrets"]
    assert volume["secret"]["secretName"] == secret["target"]["name"]
    assert monitor["endpoints"][0]["authorization"]["credentials"]["name"] == secret["target"]["name"]
    text = of_kind(manifests, "ConfigMap")["data"]["deltaweir.toml"]
    assert {one["secretKey"] for one in secret["data"]} == set(re.findall(rf"file:{SECRETS}/([\w-]+)", text))


def test_a_changed_configuration_starts_new_pods(tools: Path) -> None:
    def mark(*more: str) -> str:
        pod = of_kind(render(tools, VALUES[0], KUBERNETES[1], *more), "Deployment")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["deltaweir/configuration"])

    assert mark() == mark("--set", "replicas=5")
    assert mark() != mark("--set", "catalog.connections=17")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("secret.existing=",), "pods need a secret"),
        (("secret.external.enabled=true",), "exclude each other"),
        (("catalog.address=",), "catalog.address"),
        (("catalog.address=mysql://x",), "mysql://x"),
        (("replicas=0",), "replicas"),
        (("replikas=2",), "replikas"),
        (("ingress.enabled=true",), "ingress.host"),
        (("store.settings.type=nfs",), "store"),
    ],
)
def test_a_value_that_cannot_work_is_named(tools: Path, wrong: tuple[str, ...], said: str) -> None:
    least = next(path for path in VALUES if path.stem == "least")
    settings = [part for one in wrong for part in ("--set", one)]
    done = helm(tools, "template", "weir", CHART, "--kube-version", KUBERNETES[1], "--values", least, *settings)
    assert done.returncode != 0
    assert said in done.stderr
