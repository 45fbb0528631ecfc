#!/bin/bash
# The image's health check: healthy is what /readyz calls ready, so catalog and backends answer and nobody said SIGTERM.
# bash speaks TCP by itself; the image needs no curl. `deltaweir stats` would recount the store at every check.
set -euo pipefail

listen=${DELTAWEIR_ADMIN_LISTEN:-127.0.0.1:9001}
port=${listen##*:}
host=${listen%:*}
host=${host#[}
host=${host%]}
case $host in
    0.0.0.0 | ::) host=127.0.0.1 ;;
esac

exec 3<>"/dev/tcp/$host/$port"
printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r _ status _ <&3
echo "/readyz: $status"
[ "$status" = 200 ]
