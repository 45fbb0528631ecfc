#!/usr/bin/env bash
# The codec's tests on an emulated 64-bit ARM processor: the only ones that run its NEON comparisons.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
[ ${#missing[@]} -eq 0 ] || tests/apt.sh "${missing[@]}"
rustup target add aarch64-unknown-linux-gnu

export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cargo test --locked --target aarch64-unknown-linux-gnu -p delta-codec
