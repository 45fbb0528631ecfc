#!/usr/bin/env bash
# tests/release/bare.sh: installs what lies in results/release (or $RELEASE_OUT) in a bare Debian, once by install.sh, once by
# dpkg, once as an image, runs `deltaweir demo` there and prints the seconds from the first command to the ratio. Downloads
# are not counted. `make release-test` calls it; needs root, and a Docker Engine for the image ($RELEASE_IMAGES=no: without).
set -euo pipefail
cd "$(dirname "$0")/../.."
SECONDS_MAX=90
RATIO_MIN=3
. release/names.sh
[ "$(id -u)" -eq 0 ] || { echo "tests/release/bare.sh: debootstrap and chroot need root" >&2; exit 1; }
case $(uname -m) in
    x86_64) platform=linux-x86_64 architecture=amd64 ;;
    aarch64) platform=linux-aarch64 architecture=arm64 ;;
esac
command -v debootstrap >/dev/null || tests/apt.sh debootstrap
# minbase with ca-certificates: they bring openssl, by which install.sh checks the signature.
kept=.tools/docker/bookworm.tar
tests/docker/debian.sh "$kept" ca-certificates

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fresh() { # a Debian that nothing was installed in, with the release's files in /release
    rm -rf "$work/root"
    mkdir "$work/root"
    tar --extract --file="$kept" --directory="$work/root"
    mkdir -p "$work/root/release"
    cp "$out"/* "$work/root/release/"
    [ -c "$work/root/dev/null" ] || mknod -m 666 "$work/root/dev/null" c 1 3
}

inside() { # COMMAND: in that Debian, with a /proc of its own
    unshare --mount --pid --fork --kill-child sh -ec 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -ec "$2"' sh "$work/root" "$1"
}

timed() { # NAME COMMAND…: runs it, prints its seconds and the demo's ratio, refuses a slow or a poor one
    local name=$1 started ended ratio took
    shift
    started=$(date +%s.%N)
    "$@" >"$work/printed" 2>&1 || { tail -30 "$work/printed"; echo "$name: FAILED"; exit 1; }
    ended=$(date +%s.%N)
    ratio=$(awk '$1 == "total" { print $NF }' "$work/printed" | tail -1)
    took=$(awk -v a="$started" -v b="$ended" 'BEGIN { printf "%.1f", b - a }')
    echo "$name: from a bare Debian to a ratio of ${ratio:-none} in $took s (bound $SECONDS_MAX s)"
    awk -v took="$took" -v ratio="${ratio:-0}" -v most="$SECONDS_MAX" -v least="$RATIO_MIN" \
        'BEGIN { exit !(took <= most && ratio >= least) }' || { cat "$work/printed"; echo "$name: FAILED"; exit 1; }
}

fresh
timed "binary" inside 'sh /release/install.sh --from /release && deltaweir demo --once'
inside "deltaweir --version; test -x /usr/local/bin/deltaweir"

fresh
timed "deb" inside "dpkg --install /release/deltaweir_${version}_$architecture.deb && deltaweir demo --once"
# The service's user reads its configuration and makes its store; others read neither.
inside 'setpriv --reuid=deltaweir --regid=deltaweir --clear-groups deltaweir config check --config /etc/deltaweir/deltaweir.toml
    test -s /usr/share/man/man1/deltaweir-serve.1.gz && test -s /usr/share/bash-completion/completions/deltaweir
    if setpriv --reuid=nobody --regid=nogroup --clear-groups cat /etc/deltaweir/deltaweir.toml 2>/dev/null; then exit 1; fi
    touch /var/lib/deltaweir/an-object
    dpkg --purge deltaweir
    test -e /var/lib/deltaweir/an-object
    test ! -e /etc/deltaweir/deltaweir.toml && test ! -e /usr/bin/deltaweir'
echo "deb: its user can use it, nobody else reads its configuration, a purge leaves the objects"

if [ "${RELEASE_IMAGES:-}" = no ]; then
    echo "image: NOT RUN (RELEASE_IMAGES=no)"
elif ! docker version >/dev/null 2>&1; then
    echo "image: FAILED, no Docker Engine answers (RELEASE_IMAGES=no leaves it out)"
    exit 1
else
    started_from() { # the image's file, as somebody who has it and nothing else
        docker load --input "$out/deltaweir-$version-$platform.image.tar.gz"
        docker run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL "deltaweir:$version" demo --once
    }
    timed "image" started_from
fi
