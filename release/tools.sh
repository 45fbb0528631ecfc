#!/usr/bin/env bash
# release/tools.sh NAME…: installs pinned tools below .tools/release (or $RELEASE_TOOLS), each once.
#   python      zig as cross compiler, cargo-zigbuild, validators of SBOMs and of Kubernetes' manifests
#   rust        the compiler with the standard libraries of both musl targets, apart from your own toolchains
#   helm        renders and lints helm/deltaweir; takes minutes to build
#   schemas     of the kinds in helm/deltaweir that operators define: ServiceMonitor, ExternalSecret
#   actionlint  checks .github/workflows
set -euo pipefail
cd "$(dirname "$0")/.."

RUST=1.95.0
HELM=v3.22.0
ACTIONLINT=v1.7.12
PROMETHEUS_OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
EXTERNAL_SECRETS=github.com/external-secrets/external-secrets@v0.20.1

tools=${RELEASE_TOOLS:-$PWD/.tools/release}
mkdir -p "$tools/bin"
exec 9>"$tools/lock"
flock 9 # two calls at once take turns

python() {
    local wanted
    wanted=$(sha256sum release/requirements.txt | cut -d' ' -f1)
    [ "$(cat "$tools/python/requirements.sha256" 2>/dev/null)" = "$wanted" ] && return
    echo "tools: Python packages" >&2
    [ -x "$tools/python/bin/python" ] || python3 -m venv "$tools/python"
    "$tools/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r release/requirements.txt
    echo "$wanted" >"$tools/python/requirements.sha256"
}

rust() {
    local target missing=()
    for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
        compgen -G "$tools/rustup/toolchains/$RUST-*/lib/rustlib/$target" >/dev/null || missing+=(--target "$target")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "tools: Rust $RUST" >&2
    RUSTUP_HOME=$tools/rustup rustup --quiet toolchain install "$RUST" --profile minimal --no-self-update "${missing[@]}"
}

go_tool() { # NAME MODULE VERSION
    [ -x "$tools/bin/$1" ] && go version -m "$tools/bin/$1" | grep -qE "^[[:space:]]mod[[:space:]].*[[:space:]]$3[[:space:]]" && return
    echo "tools: $1 $3" >&2
    GOBIN=$tools/bin GOFLAGS=-mod=mod go install "$2@$3"
}

helm() { go_tool helm helm.sh/helm/v3/cmd/helm "$HELM"; }
actionlint() { go_tool actionlint github.com/rhysd/actionlint/cmd/actionlint "$ACTIONLINT"; }
definition() { # MODULE@VERSION PATH: that file of a Go module, copied to schemas/
    local kept=$tools/schemas/${1##*@}-${2##*/} folder
    [ -s "$kept" ] && return
    echo "tools: ${2##*/} of $1" >&2
    mkdir -p "$tools/schemas"
    folder=$(GOFLAGS=-mod=mod go mod download -json "$1" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p')
    install --mode=644 "$folder/$2" "$kept"
}

schemas() {
    definition "$PROMETHEUS_OPERATOR" example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
    definition "$EXTERNAL_SECRETS" config/crds/bases/external-secrets.io_externalsecrets.yaml
}

for name; do
    case $name in
        python | rust | helm | schemas | actionlint) "$name" ;;
        *) echo "release/tools.sh: no tool is called $name" >&2; exit 2 ;;
    esac
done
