"""House rules that a program can check, so that no reviewer has to remember them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from outside.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent.parent
LEAVES = (
    "access",
    "delta-codec",
    "deflate-view",
    "hash-lanes",
    "object-format",
    "s3-wire",
    "catalog",
    "storage-backends",
)
BELOW_LEAVES = "crypto"
"""The crate that leaves share."""
CRATES = (BELOW_LEAVES, *LEAVES, "engine", "proxy")
BESIDE = ("house", "models", "simulator")
"""Crates for tests alone."""
CRYPTOGRAPHY = {"aes", "aes-gcm", "aws-sigv4", "chacha20poly1305", "ctr", "hkdf", "hmac", "ring", "sha2"}
"""Libraries that a FIPS build has no use for."""
HOT_LOOPS = ("delta-codec", "hash-lanes")
"""Crates that may hold unsafe code."""
FAR_FROM_THE_ENGINE = (
    "hyper",
    "http",
    "quick-xml",
    "prometheus",
    "clap",
    "object_store",
    "tokio-postgres",
    "s3-wire",
    "proxy",
)
"""What the engine must not reach: the compiler refuses what is not among its dependencies."""
LINES_MAX = 900
"""A file this long holds several nouns."""
COMMENT_COLUMNS_MAX = 100
"""Diagrams between code fences may be wider."""
DRAWERS = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "handler"}


def tracked(*suffixes: str) -> list[Path]:
    """Files of the repository, as git knows them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and path.name.endswith(suffixes)]


def relative(path: Path) -> str:
    """A path as messages show it."""
    return str(path.relative_to(ROOT))


def rust_functions() -> set[str]:
    """Names of every function in the crates."""
    names: set[str] = set()
    for path in tracked(".rs"):
        names |= set(re.findall(r"\bfn (\w+)", path.read_text()))
    return names


def test_no_source_file_holds_several_nouns() -> None:
    long = {
        relative(path): lines
        for path in tracked(".rs", ".py")
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert long == {}


def test_no_file_is_a_drawer() -> None:
    assert [relative(path) for path in tracked(".rs", ".py") if path.stem in DRAWERS] == []


def test_comments_wrap_at_a_hundred_columns() -> None:
    wide = []
    for path in tracked(".rs"):
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            is_comment = line.lstrip().startswith("//")
            fenced = is_comment and fenced != ("```" in line)
            if is_comment and not fenced and len(line) > COMMENT_COLUMNS_MAX:
                wide.append(f"{relative(path)}:{number}")
    assert wide == []


def test_nothing_is_left_for_later() -> None:
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|unimple" r"mented!|to" r"do!)\b|#\[ignore")
    found = [
        f"{relative(path)}:{number}"
        for path in tracked(".rs", ".py", ".sh", ".md", ".toml", "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_no_path_of_one_machine_is_written_down() -> None:
    machine = re.compile(r"(?<![\w.])/(root|home|work|Users)/\w")
    found = [
        f"{relative(path)}:{number}"
        for path in tracked(".rs", ".py", ".sh", ".md", ".toml", ".yaml", ".yml", "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if machine.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("crate", LEAVES)
def test_a_leaf_knows_no_other_crate_of_ours(crate: str) -> None:
    manifest = tomllib.loads((ROOT / crate / "Cargo.toml").read_text())
    tables = ("dependencies", "dev-dependencies", "build-dependencies")
    named = {name for table in tables for name in manifest.get(table, {})}
    assert named & (set(CRATES) - {crate, BELOW_LEAVES}) == set()


def test_the_crate_below_the_leaves_knows_none_of_ours() -> None:
    manifest = tomllib.loads((ROOT / BELOW_LEAVES / "Cargo.toml").read_text())
    assert set(manifest["dependencies"]) & set(CRATES) == set()


@pytest.mark.parametrize("crate", CRATES)
def test_cryptography_comes_from_one_crate_that_a_fips_build_takes_from_its_module(crate: str) -> None:
    named = set(tomllib.loads((ROOT / crate / "Cargo.toml").read_text()).get("dependencies", {}))
    # The keys of a signature are aws-sigv4's in the default build alone (s3-wire/src/sigv4/signing.rs).
    allowed = {BELOW_LEAVES: {"aes-gcm", "hkdf", "hmac", "sha2"}, "s3-wire": {"aws-sigv4"}}
    assert named & CRYPTOGRAPHY == allowed.get(crate, set())


def test_lints_and_tests_are_built_with_every_feature_but_fips() -> None:
    """`--all-features` would compile the FIPS module: minutes of C."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    assert set(members) == {*CRATES, *BESIDE}
    features = {
        name
        for crate in members
        for name in tomllib.loads((ROOT / crate / "Cargo.toml").read_text()).get("features", {})
    }
    assert set(FEATURES[1].split(",")) == features - {"fips"}
    commands = re.compile(r"cargo\W+(build|clippy|test|check)\b[^\n]*--all-features")
    asked = [
        relative(path)
        for path in tracked(".py", ".sh", ".md", ".yml", "Makefile", "run")
        if commands.search(path.read_text())
    ]
    assert asked == []


def test_the_proxy_depends_on_all_leaves() -> None:
    manifest = tomllib.loads((ROOT / "proxy" / "Cargo.toml").read_text())
    assert {*LEAVES, "engine"} <= set(manifest["dependencies"])


def test_http_xml_prometheus_command_lines_and_clouds_are_out_of_the_engines_reach() -> None:
    command = ["cargo", "tree", "--locked", "--offline", "-p", "engine", "-e", "normal", "--prefix", "none"]
    tree = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    reached = {line.split()[0] for line in tree.splitlines() if line}
    assert {"catalog", "storage-backends", "object-format", "delta-codec"} <= reached
    assert reached & set(FAR_FROM_THE_ENGINE) == set()


@pytest.mark.parametrize("crate", CRATES)
def test_unsafe_code_is_forbidden_but_for_hot_loops(crate: str) -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["lints"]["rust"]["unsafe_code"]
    lints = tomllib.loads((ROOT / crate / "Cargo.toml").read_text())["lints"]
    level = workspace if lints.get("workspace") else lints["rust"]["unsafe_code"]
    assert level == ("deny" if crate in HOT_LOOPS else "forbid")


def test_mutants_are_built_only_where_they_are_asked_for() -> None:
    manifest = tomllib.loads((ROOT / "proxy" / "Cargo.toml").read_text())
    mutants = {name for name in manifest["features"] if name.startswith("mutant-")}
    assert mutants
    assert mutants & set(manifest["features"].get("default", [])) == set()
    bins = {bin["name"]: set(bin.get("required-features", [])) for bin in manifest["bin"]}
    assert bins["deltaweir"] == set()
    assert bins["deltaweir-mutant"] <= mutants
    assert bins["deltaweir-mutant"]
    assert "not(debug_assertions)" in (ROOT / "proxy" / "src" / "mutant.rs").read_text()
    for path in ("Makefile", "docker/Dockerfile"):
        assert "mutant" not in (ROOT / path).read_text(), path


def test_every_unsafe_block_of_a_hot_loop_says_why_it_is_sound() -> None:
    for path in [path for crate in HOT_LOOPS for path in (ROOT / crate / "src").rglob("*.rs")]:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe (\{|fn|impl)", line) and not line.lstrip().startswith("//"):
                before = "\n".join(lines[max(0, number - 8) : number + 1])
                assert re.search(r"SAFETY|# Safety", before), f"{relative(path)}:{number + 1}"


def test_operations_know_no_backend() -> None:
    for path in (ROOT / "proxy" / "src" / "ops").rglob("*.rs"):
        assert not re.search(r"\b(storage_backends|object_format|delta_codec)::", path.read_text()), relative(path)


def test_only_the_configuration_reads_the_environment() -> None:
    readers = [
        relative(path)
        for crate in CRATES
        for path in (ROOT / crate / "src").rglob("*.rs")
        if re.search(r"\benv::vars?(_os)?\(", path.read_text())
    ]
    assert readers == ["proxy/src/config/environment.rs"]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/life-of-a-request.md"])
def test_functions_named_in_a_page_exist(page: str) -> None:
    named = set(re.findall(r"`(?:\w+::)?(\w+)\(\)`", (ROOT / page).read_text()))
    assert named, f"{page} names no function: the check would check nothing"
    assert named - rust_functions() == set()


MODULES_OF_A_REQUEST_MAX = 12
CALL = re.compile(r"^\| `([\w/.]+\.rs)` \| `(\w+)\(\)` \| (.+) \|$", re.MULTILINE)


def bodies(module: str, function: str) -> str:
    """What functions of this name in a module do."""
    text = (ROOT / module).read_text()
    found = []
    for match in re.finditer(rf"\bfn {function}\b", text):
        start = text.index("{", match.end())
        depth, at = 1, start + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found.append(text[start:at])
    return "\n".join(found)


@pytest.mark.parametrize("request_of", ["A PUT", "A PUT that finds a base", "A GET of a delta", "A Complete"])
def test_each_function_of_a_request_calls_the_next(request_of: str) -> None:
    page = (ROOT / "docs" / "life-of-a-request.md").read_text()
    told = page.split(f"### {request_of}\n")[1].split("\n### ")[0]
    rows = CALL.findall(told)
    assert len(rows) >= 4
    assert len({module for module, _, _ in rows}) <= MODULES_OF_A_REQUEST_MAX
    for module, function, calls in rows:
        body = bodies(module, function)
        missing = [name for name in re.findall(r"`(\w+)\(\)`", calls) if not re.search(rf"\b{name}\(", body)]
        assert body and not missing, f"{function}() of {module} does not call {missing}"


def test_files_named_in_documents_exist() -> None:
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    name = re.compile(rf"`((?:docs|tests|{'|'.join(CRATES)})/[\w./-]+)`")
    missing: list[str] = []
    for page in tracked(".md"):
        text = page.read_text()
        named = [(page.parent, found) for found in link.findall(text)] + [(ROOT, found) for found in name.findall(text)]
        # What tests leave behind is there after they ran.
        kept = [(folder, found) for folder, found in named if not found.startswith("tests/artefacts/")]
        missing += [f"{relative(page)}: {found}" for folder, found in kept if not (folder / found).exists()]
    assert missing == []


def test_the_readme_begins_with_the_two_commands_and_says_what_it_is_not() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:60])
    for wanted in ("make run", "make test", "not"):
        assert wanted in screen


def test_every_invariant_has_its_place_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert re.findall(r"\*\*(I\d+)\*\*", text) == [f"I{number}" for number in range(1, 13)]


def test_version_floors_are_written_so_that_they_hold() -> None:
    """`name@<1` names the one version `<1`, which is none; `name:<1` is a floor."""
    denied = tomllib.loads((ROOT / "deny.toml").read_text())["bans"]["deny"]
    floors = [entry["crate"] for entry in denied if "<" in entry["crate"]]
    assert len(floors) >= 6
    assert all(re.fullmatch(r"[\w-]+:<[\d.]+", floor) for floor in floors)


def test_the_makefile_has_the_promised_targets_and_ci_calls_test_and_nothing_else() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("run", "test", "test-all", "bench", "demo", "lint", "fmt"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert len(commands) == 1
    assert commands[0].endswith(" test")
