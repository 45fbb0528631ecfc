#!/usr/bin/env bash
# Installs the Debian packages it is given, as root or by sudo, without starting a server that one of them brings.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "setup: apt installs $*"
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
# Debian starts a server when it installs one. The tests start their own, on free ports and with folders of their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
    "${sudo[@]}" chmod +x $policy
    # shellcheck disable=SC2064
    trap "${sudo[*]} rm -f $policy" EXIT
fi
mkdir -p .tools
"${sudo[@]}" apt-get update -qq >.tools/apt.log 2>&1 || { tail -20 .tools/apt.log; exit 1; }
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >>.tools/apt.log 2>&1 ||
    { tail -20 .tools/apt.log; exit 1; }
