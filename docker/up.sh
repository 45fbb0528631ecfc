#!/usr/bin/env bash
# Makes the secrets that are missing in docker/secrets, then starts compose.yaml, or with `cluster` as the first argument
# compose.cluster.yaml; the other arguments go to `compose up`.
set -euo pipefail
cd "$(dirname "$0")"

project=deltaweir
file=compose.yaml
if [ "${1:-}" = cluster ]; then
    project=deltaweir-cluster
    file=compose.cluster.yaml
    shift
fi

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
key_id() { # NAME: an access key id, made once
    [ -s "secrets/$1" ] ||
        (umask 022 && printf 'DW%s' "$(head -c 9 /dev/urandom | od -An -tx1 | tr -d ' \n' | tr a-f A-F)" >"secrets/$1")
}
key_id access_key_id
if [ $file = compose.cluster.yaml ]; then
    key_id store_access_key_id
    random store_secret_access_key 30
    # Digits and letters only: it stands in an address.
    [ -s secrets/postgres_password ] ||
        (umask 022 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >secrets/postgres_password)
    # Inside the project's own network, so without TLS: docs/reference/postgres.md.
    [ -s secrets/catalog_address ] ||
        (umask 022 && printf 'postgres://deltaweir:%s@postgres/deltaweir?sslmode=disable' \
            "$(cat secrets/postgres_password)" >secrets/catalog_address)
fi

compose=(docker compose)
"${compose[@]}" version >/dev/null 2>&1 || compose=(docker-compose)
export DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1
"${compose[@]}" --project-name "${COMPOSE_PROJECT_NAME:-$project}" --file $file up --detach "$@"

echo "S3:         http://127.0.0.1:${S3_PORT:-9000}"
if [ $file = compose.cluster.yaml ]; then
    for replica in 1 2 3; do
        port=ADMIN_PORT_$replica
        echo "admin:      http://127.0.0.1:${!port:-900$replica}  (replica-$replica, token in docker/secrets/admin_token)"
    done
else
    cat <<END
admin:      http://127.0.0.1:${ADMIN_PORT:-9001}  (token in docker/secrets/admin_token)
Prometheus: http://127.0.0.1:${PROMETHEUS_PORT:-9090}
Grafana:    http://127.0.0.1:${GRAFANA_PORT:-3000}  (admin, password in docker/secrets/grafana_password)
END
fi
cat <<END

export AWS_ACCESS_KEY_ID=\$(cat docker/secrets/access_key_id)
export AWS_SECRET_ACCESS_KEY=\$(cat docker/secrets/secret_access_key)
export AWS_DEFAULT_REGION=us-east-1
aws --endpoint-url http://127.0.0.1:${S3_PORT:-9000} s3 mb s3://releases
END
