#!/usr/bin/env bash
# release/release.sh [TARGET…]: everything of a release but its publication, for both targets or those named. Images are made
# where a Docker Engine answers. $RELEASE_IMAGES=no leaves them out, =yes fails without an engine.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- x86_64-unknown-linux-musl aarch64-unknown-linux-musl
. release/names.sh
mkdir -p "$out"
find "$out" -mindepth 1 -maxdepth 1 -type f -delete
images=${RELEASE_IMAGES:-}
if [ -z "$images" ]; then
    if docker version >/dev/null 2>&1; then images=yes; else images=no; echo "no Docker Engine answers: no images" >&2; fi
fi
# This machine's own first: its binary tells the man pages of the other (release/build.sh).
mapfile -t targets < <(printf '%s\n' "$@" | grep "^$(uname -m)-"; printf '%s\n' "$@" | grep -v "^$(uname -m)-")
for target in "${targets[@]}"; do
    release/build.sh "$target"
    [ "$images" = no ] || release/image.sh "$target"
done
release/sign.sh
ls -l "$out" >&2
