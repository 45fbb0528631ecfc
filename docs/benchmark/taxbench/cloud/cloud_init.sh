#!/bin/sh
# First boot of a benchmark machine: what `taxbench local` needs, and a mark that says it is there.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends python3-venv nginx-light xdelta3 bsdiff zstd \
    squashfs-tools xorriso ca-certificates curl
systemctl disable --now nginx || true
mkdir -p /opt/taxbench
touch /opt/taxbench/ready
