#!/usr/bin/env bash
# release/build.sh TARGET: a static binary for one target, and what is made of it, in results/release (or $RELEASE_OUT):
# the archive, the Debian package, the list of components. Without TARGET's compiler: release/tools.sh gets it.
# $RELEASE_BINARY is taken in place of a build, for trials of what is around it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?"usage: release/build.sh x86_64-unknown-linux-musl | aarch64-unknown-linux-musl"}
. release/names.sh
platform=$(platform "$target")
name=deltaweir-$version-$platform
mkdir -p "$out"

if [ -n "${RELEASE_BINARY:-}" ]; then
    binary=$RELEASE_BINARY
else
    release/tools.sh python rust
    export RUSTUP_HOME=$tools/rustup RUSTUP_TOOLCHAIN=1.95.0 PATH=$tools/python/bin:$PATH DELTAWEIR_COMMIT=$commit
    # Neither symbols nor this machine's paths.
    export CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=debuginfo
    export RUSTFLAGS="--remap-path-prefix=$PWD=/deltaweir --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    export TARGET_CFLAGS="-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    # ARM kernels have pages of 4, 16 or 64 KiB; jemalloc made for the largest runs on all of them.
    case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
    cargo-zigbuild zigbuild --release --locked -p proxy --bin deltaweir --target "$target"
    binary=${CARGO_TARGET_DIR:-target}/$target/release/deltaweir
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sbom=$out/$name.cdx.json
python3 release/sbom.py --target "$target" --version "$version" --commit "$commit" >"$sbom.new"
mv "$sbom.new" "$sbom"

# Man pages and completions are the binary's own words, the same for every processor. A binary that does not run here leaves
# them to one that was built before it.
documents=$work/$name
install -d "$documents/man" "$documents/completions"
if "$binary" --version >/dev/null 2>&1; then
    "$binary" man "$documents/man" >&2
    for shell in bash zsh fish; do "$binary" completions "$shell" >"$documents/completions/deltaweir.$shell"; done
else
    other=$(find "$out" -maxdepth 1 -name "deltaweir-$version-linux-*.tar.gz" ! -name "$name.tar.gz" -print -quit)
    [ -n "$other" ] || { echo "release/build.sh: $binary does not run here: build this machine's own target first" >&2; exit 1; }
    tar --extract --gzip --file="$other" --directory="$documents" --strip-components=1 --wildcards '*/man' '*/completions'
fi
chmod 644 "$documents"/man/* "$documents"/completions/*

install -D "$binary" "$work/$name/deltaweir"
install --mode=644 LICENSE README.md release/deltaweir.service release/deltaweir.toml "$work/$name/"
install --mode=644 "$sbom" "$work/$name/deltaweir.cdx.json"
packed "$out/$name.tar.gz" "$work" "$name"
release/deb.sh "$(architecture "$target")" "$work/$name"
echo "made $out/$name.tar.gz" >&2
