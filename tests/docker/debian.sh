#!/usr/bin/env bash
# tests/docker/debian.sh KEPT PACKAGE,…: a root file system of Debian with these packages, as debootstrap makes it, kept as a tar
# file; nothing happens where it is there already. Needs root.
set -euo pipefail
kept=$1
[ -s "$kept" ] && exit
suite=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$(dirname "$kept")"
debootstrap --variant=minbase --include="$2" "$suite" "$work/root" "$mirror" >"$kept.log" 2>&1 ||
    { tail -20 "$kept.log"; exit 1; }
# Devices are the engine's; what apt downloaded is needed no more.
tar --create --file="$kept.new" --directory="$work/root" --exclude='./dev/*' --exclude='./var/cache/apt/*.bin' \
    --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' .
mv "$kept.new" "$kept"
