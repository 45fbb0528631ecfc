"""Prints the components of a binary (CycloneDX 1.6, JSON): the crates that `cargo metadata` resolves for a target.

What is linked is `required`; what only takes part in the build (build scripts, macros) is `excluded`. Needs nothing but
Python and cargo. The same commit gives the same text: times and ids come from it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "proxy"
NAMESPACE = uuid.UUID("6f0f5cf0-2f5c-4d6e-9d3a-0d5a3c7b1e42")


def metadata(target: str) -> dict[str, Any]:
    """What cargo knows of the workspace and its dependencies on this target."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return found


def checksums() -> dict[tuple[str, str], str]:
    """SHA-256 of each crate's archive by name and version, as Cargo.lock pins them."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


def reach(nodes: dict[str, Any], root: str, packages: dict[str, Any], building: bool) -> dict[str, set[str]]:
    """Ids of what the root needs, each with what it needs itself; `building` adds build scripts and macros."""
    edges: dict[str, set[str]] = {}
    waiting = [root]
    while waiting:
        package = waiting.pop()
        if package in edges:
            continue
        kinds = {None, "build"} if building else {None}
        needed = {one["pkg"] for one in nodes[package]["deps"] if kinds & {kind["kind"] for kind in one["dep_kinds"]}}
        if not building:
            needed = {one for one in needed if not is_macro(packages[one])}
        edges[package] = needed
        waiting += sorted(needed)
    return edges


def is_macro(package: dict[str, Any]) -> bool:
    """Whether a crate runs in the compiler instead of being linked."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def reference(package: dict[str, Any]) -> str:
    """A package's URL, which is its id in the list as well."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict[str, Any], sums: dict[tuple[str, str], str], linked: bool) -> dict[str, Any]:
    """One crate as CycloneDX describes it."""
    told: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if linked else "excluded",
        "purl": reference(package),
    }
    if expression := package.get("license"):
        told["licenses"] = [{"expression": expression.replace("/", " OR ")}]
    if checksum := sums.get((package["name"], package["version"])):
        told["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if address := package.get("repository"):
        told["externalReferences"] = [{"type": "vcs", "url": address}]
    return told


def bom(target: str, version: str, commit: str, made: int) -> dict[str, Any]:
    """The whole document."""
    found = metadata(target)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    root = next(id for id in found["workspace_members"] if packages[id]["name"] == PROGRAM)
    linked = reach(nodes, root, packages, building=False)
    all_of_it = reach(nodes, root, packages, building=True)
    sums = checksums()
    names = {id: reference(packages[id]) for id in all_of_it} | {root: "deltaweir"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'{version} {commit} {target}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(made, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": "deltaweir",
                "name": "deltaweir",
                "version": version,
                "licenses": [{"expression": packages[root]["license"]}],
                "properties": [
                    {"name": "deltaweir:commit", "value": commit},
                    {"name": "deltaweir:target", "value": target},
                ],
            },
        },
        "components": sorted(
            (component(packages[id], sums, id in linked) for id in all_of_it if id != root),
            key=lambda one: str(one["bom-ref"]),
        ),
        "dependencies": sorted(
            ({"ref": names[id], "dependsOn": sorted(names[one] for one in needed)} for id, needed in all_of_it.items()),
            key=lambda one: str(one["ref"]),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    told = parser.parse_args()
    made = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    print(json.dumps(bom(told.target, told.version, told.commit, made), indent=2))


if __name__ == "__main__":
    main()
