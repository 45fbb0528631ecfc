#!/usr/bin/env bash
# Makes the images that a registry would otherwise give, and imports them into the engine DOCKER_HOST names:
#   deltaweir-test/debian      Debian as debootstrap makes it, in place of debian:bookworm-slim
#   deltaweir-test/binary      /out with the given binary, in place of the Dockerfile's stage `build`
#   deltaweir-test/prometheus  this machine's Prometheus on that Debian, in place of prom/prometheus
# Needs root for debootstrap. The root file system is kept in .tools/docker and made anew when that is removed.
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")/../.."

suite=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
kept=.tools/docker/$suite.tar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -s "$kept" ]; then
    mkdir -p "$(dirname "$kept")"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/root" "$mirror" >"$kept.log" 2>&1 ||
        { tail -20 "$kept.log"; exit 1; }
    # Devices are the engine's; what apt downloaded is needed no more.
    tar --create --file="$kept.new" --directory="$work/root" --exclude='./dev/*' --exclude='./var/cache/apt/*.bin' \
        --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' .
    mv "$kept.new" "$kept"
fi
docker import "$kept" deltaweir-test/debian

out=$work/binary/out
install -D "$binary" "$out/usr/local/bin/deltaweir"
strip --strip-debug "$out/usr/local/bin/deltaweir"
install -d "$out/etc/ssl/certs"
tar --extract --file="$kept" --to-stdout ./etc/ssl/certs/ca-certificates.crt >"$out/etc/ssl/certs/ca-certificates.crt"
tar --create --owner=0 --group=0 --directory="$work/binary" . | docker import - deltaweir-test/binary

mkdir "$work/prometheus"
cp "$(command -v prometheus)" "$work/prometheus/"
cat >"$work/prometheus/Dockerfile" <<'END'
FROM deltaweir-test/debian
COPY prometheus /bin/prometheus
RUN install -d -o 65534 -g 65534 /prometheus
USER 65534:65534
ENTRYPOINT ["/bin/prometheus"]
END
DOCKER_BUILDKIT=1 docker build --network host --quiet --tag deltaweir-test/prometheus "$work/prometheus"
