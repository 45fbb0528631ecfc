#!/usr/bin/env bash
# release/image.sh TARGET: the container image around the archive's binary (docker/Dockerfile without its stage `build`), kept
# as results/release/deltaweir-VERSION-PLATFORM.image.tar.gz for `docker load`. Needs a Docker Engine.
# $RUNTIME_IMAGE replaces debian:bookworm-slim.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?"usage: release/image.sh TARGET"}
. release/names.sh
name=deltaweir-$version-$(platform "$target")
docker=linux/$(architecture "$target")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --extract --gzip --file="$out/$name.tar.gz" --directory="$work" "$name/deltaweir"
install -D "$work/$name/deltaweir" "$work/root/out/usr/local/bin/deltaweir"
install -D --mode=644 /etc/ssl/certs/ca-certificates.crt "$work/root/out/etc/ssl/certs/ca-certificates.crt"
tar --create --owner=0 --group=0 --directory="$work/root" . |
    docker import --platform "$docker" - "deltaweir-binary:$version-${target%%-*}"
DOCKER_BUILDKIT=1 docker build --network host --platform "$docker" --file docker/Dockerfile \
    --build-arg "BINARY=deltaweir-binary:$version-${target%%-*}" \
    ${RUNTIME_IMAGE:+--build-arg "RUNTIME_IMAGE=$RUNTIME_IMAGE"} \
    --build-arg "VERSION=$version" --build-arg "DELTAWEIR_COMMIT=$commit" \
    --tag "deltaweir:$version" .
docker save "deltaweir:$version" | gzip -9 --no-name >"$out/$name.image.tar.gz.new"
mv "$out/$name.image.tar.gz.new" "$out/$name.image.tar.gz"
echo "made $out/$name.image.tar.gz" >&2
