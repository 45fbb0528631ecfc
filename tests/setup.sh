#!/usr/bin/env bash
# Brings a machine with Debian, Rust, Python 3.11 and Go to where every test can run. Repeating it costs a second:
# each part is skipped when what it would make is there already. Nothing outside .venv, .tools, tests/console/node_modules
# and apt is touched.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSITYGW=v1.8.0  # the other S3 server: tests are tried on it, and it plays the backend store
RCLONE=v1.76.0     # for `make bench-peers`: Debian's does not serve S3
MINIO=v0.0.0-20260212201848-7aac2a2c5b7c # for `make bench-peers` and tests/foreign/test_migrating.py; eight minutes; AGPL: a process beside ours
VAULT=v1.21.0      # for tests/e2e/test_vault.py, which `make test-all` runs; ten minutes; BUSL: run by tests, never shipped
KOPIA=v0.21.1      # for tests/foreign/test_kopia.py; five minutes
OPENTOFU=v1.12.6   # for tests/foreign/test_opentofu.py; ten minutes; MPL 2.0: run by tests, never shipped
CARGO_DENY=0.20.2 # licences and version floors; built without optimisation, which takes a minute

mkdir -p .tools/bin
exec 9>.tools/setup.lock
flock 9 # two calls at once take turns

packages() {
    local missing=() name
    while read -r name; do
        dpkg-query --show --showformat='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done < <(sed -E 's/#.*//; s/[[:space:]]+//g; /^$/d' tests/apt-packages.txt)
    python3.11 -c 'import ensurepip' 2>/dev/null || missing+=(python3.11-venv)
    command -v node >/dev/null || missing+=(nodejs) # any from version 18 on will do
    command -v npm >/dev/null || missing+=(npm)
    [ ${#missing[@]} -eq 0 ] && return
    tests/apt.sh "${missing[@]}"
}

python() {
    local wanted
    wanted=$(sha256sum tests/requirements.txt | cut -d' ' -f1)
    [ "$(cat .venv/requirements.sha256 2>/dev/null)" = "$wanted" ] && return
    echo "setup: Python packages into .venv"
    [ -x .venv/bin/python ] || python3.11 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input -r tests/requirements.txt
    echo "$wanted" >.venv/requirements.sha256
}

versitygw() {
    [ -x .tools/bin/versitygw ] && go version -m .tools/bin/versitygw | grep -q "versitygw[[:space:]]$VERSITYGW" && return
    echo "setup: versitygw $VERSITYGW"
    GOBIN=$PWD/.tools/bin GOFLAGS=-mod=mod go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
}

rclone() {
    [ -x .tools/bin/rclone ] && go version -m .tools/bin/rclone | grep -q "rclone/rclone[[:space:]]$RCLONE" && return
    echo "setup: rclone $RCLONE"
    GOBIN=$PWD/.tools/bin GOFLAGS=-mod=mod go install "github.com/rclone/rclone@$RCLONE"
}

minio() {
    [ -x .tools/bin/minio ] && go version -m .tools/bin/minio | grep -q "minio/minio[[:space:]]$MINIO" && return
    echo "setup: minio $MINIO"
    GOBIN=$PWD/.tools/bin GOFLAGS=-mod=mod go install -ldflags "-X github.com/minio/minio/cmd.ReleaseTag=$MINIO" \
        "github.com/minio/minio@$MINIO"
}

s3proxy() { # its jars, by Maven, which tests/apt-packages.txt installs
    local pom=docs/benchmark/peers/pom.xml wanted
    wanted=$(sha256sum $pom | cut -d' ' -f1)
    [ "$(cat .tools/s3proxy/pom.sha256 2>/dev/null)" = "$wanted" ] && return
    echo "setup: s3proxy"
    rm -rf .tools/s3proxy
    mvn -q -B -f $pom dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$PWD/.tools/s3proxy"
    echo "$wanted" >.tools/s3proxy/pom.sha256
}

# A program whose module `go install` refuses because of its `replace` lines: built in a module that repeats those that
# matter. PROGRAM MODULE VERSION PACKAGE [go build's options]; the replacements come from standard input.
in_a_module() {
    local program=$1 of=$2 version=$3 package=$4 module
    shift 4
    [ -x ".tools/bin/$program" ] && go version -m ".tools/bin/$program" | grep -q "$of[[:space:]]$version" && return
    echo "setup: $program $version"
    module=$(mktemp -d)
    { printf 'module tools\ngo 1.25\nrequire %s %s\n' "$of" "$version" && cat; } >"$module/go.mod"
    (cd "$module" && GOFLAGS=-mod=mod go build "$@" -o "$program" "$package")
    mv "$module/$program" ".tools/bin/$program"
    rm -r "$module"
}

vault() {
    in_a_module vault github.com/hashicorp/vault "$VAULT" github.com/hashicorp/vault -tags minimal <<END
replace (
	github.com/99designs/keyring => github.com/Jeffail/keyring v1.2.3
	github.com/hashicorp/vault/sdk => github.com/hashicorp/vault/sdk v0.20.0
	github.com/ma314smith/signedxml v1.1.1 => github.com/moov-io/signedxml v1.1.1
)
END
}

kopia() {
    in_a_module kopia github.com/kopia/kopia "$KOPIA" github.com/kopia/kopia </dev/null
}

opentofu() {
    in_a_module tofu github.com/opentofu/opentofu "$OPENTOFU" github.com/opentofu/opentofu/cmd/tofu <<END
replace github.com/hashicorp/hcl/v2 => github.com/opentofu/hcl/v2 v2.20.2-0.20251021132045-587d123c2828
END
}

cargo_deny() {
    [ -x .tools/bin/cargo-deny ] && .tools/bin/cargo-deny --version | grep -q " $CARGO_DENY$" && return
    echo "setup: cargo-deny $CARGO_DENY"
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug --no-default-features --root .tools \
        "cargo-deny@$CARGO_DENY"
}

console() {
    local wanted
    wanted=$(sha256sum tests/console/package-lock.json | cut -d' ' -f1)
    [ "$(cat tests/console/node_modules/lock.sha256 2>/dev/null)" = "$wanted" ] && return
    command -v npm >/dev/null || tests/apt.sh nodejs npm
    echo "setup: the console's tests"
    (cd tests/console && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    echo "$wanted" >tests/console/node_modules/lock.sha256
}

js_sdk() {
    local wanted
    wanted=$(sha256sum tests/js-sdk/package-lock.json | cut -d' ' -f1)
    [ "$(cat tests/js-sdk/node_modules/lock.sha256 2>/dev/null)" = "$wanted" ] && return
    echo "setup: the SDK for JavaScript into tests/js-sdk/node_modules"
    (cd tests/js-sdk && npm ci --silent --no-audit --no-fund --ignore-scripts)
    echo "$wanted" >tests/js-sdk/node_modules/lock.sha256
}

if [ "${1:-}" = peers ]; then # servers that only a benchmark needs
    versitygw
    rclone
    minio
    s3proxy
    exit
fi
case "${1:-}" in # what one test alone needs, or what compiling does
    vault | kopia | opentofu | minio | packages)
        "$1"
        exit
        ;;
esac
packages
python
versitygw
cargo_deny
js_sdk
console
