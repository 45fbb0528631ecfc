#!/usr/bin/env bash
# Installs what tests/docker needs from Debian: the engine, Compose, and what makes a base image without a registry.
set -euo pipefail

missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v debootstrap >/dev/null || missing+=(debootstrap)
docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || missing+=(docker-compose)
[ ${#missing[@]} -eq 0 ] && exit

"$(dirname "$0")/../apt.sh" "${missing[@]}"
