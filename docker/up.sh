#!/usr/bin/env bash
# Makes the secrets that are missing in docker/secrets, then starts compose.yaml; arguments go to `compose up`.
set -euo pipefail
cd "$(dirname "$0")"

# Compose mounts a secret's file as it is, and the containers run as users of their own: they must be able to read the files,
# and the folder around them keeps everybody else on this machine out.
mkdir -p secrets
chmod 700 secrets
random() { # NAME BYTES: base64 of that many bytes of the kernel's, made once
    local file=secrets/$1
    [ -s "$file" ] && return
    (umask 022 && head -c "$2" /dev/urandom | base64 -w0 >"$file.new" && mv "$file.new" "$file")
    echo "made docker/$file"
}
random secret_access_key 30
random admin_token 30
random kek 32
random grafana_password 18
[ -s secrets/access_key_id ] ||
    (umask 022 && printf 'DW%s' "$(head -c 9 /dev/urandom | od -An -tx1 | tr -d ' \n' | tr a-f A-F)" >secrets/access_key_id)

compose=(docker compose)
"${compose[@]}" version >/dev/null 2>&1 || compose=(docker-compose)
export DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1
"${compose[@]}" --project-name "${COMPOSE_PROJECT_NAME:-deltaweir}" --file compose.yaml up --detach "$@"

cat <<END
S3:         http://127.0.0.1:${S3_PORT:-9000}
admin:      http://127.0.0.1:${ADMIN_PORT:-9001}  (token in docker/secrets/admin_token)
Prometheus: http://127.0.0.1:${PROMETHEUS_PORT:-9090}
Grafana:    http://127.0.0.1:${GRAFANA_PORT:-3000}  (admin, password in docker/secrets/grafana_password)

export AWS_ACCESS_KEY_ID=\$(cat docker/secrets/access_key_id)
export AWS_SECRET_ACCESS_KEY=\$(cat docker/secrets/secret_access_key)
export AWS_DEFAULT_REGION=us-east-1
aws --endpoint-url http://127.0.0.1:${S3_PORT:-9000} s3 mb s3://releases
END
