#!/usr/bin/env bash
# Makes the images that a registry would otherwise give, and imports them into the engine DOCKER_HOST names:
#   deltaweir-test/debian      Debian as debootstrap makes it, in place of debian:bookworm-slim
#   deltaweir-test/rust        this machine's Rust, a C compiler and every crate of Cargo.lock, in place of rust:…-bookworm
#   deltaweir-test/binary      when a binary is given: /out with it, in place of the Dockerfile's stage `build`
#   deltaweir-test/prometheus  this machine's Prometheus on that Debian, in place of prom/prometheus
#   deltaweir-test/postgres    this machine's PostgreSQL, in place of postgres
#   deltaweir-test/nginx       this machine's nginx, in place of nginx
#   deltaweir-test/store       versitygw from .tools, in place of versity/versitygw
# Needs root for debootstrap. Root file systems are kept in .tools/docker and made anew when that is removed.
set -euo pipefail
binary=${1:+$(realpath "$1")}
cd "$(dirname "$0")/../.."

suite=bookworm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kept=.tools/docker/$suite.tar
tests/docker/debian.sh "$kept" ca-certificates
docker import "$kept" deltaweir-test/debian

if [ -n "$binary" ]; then
    out=$work/binary/out
    install -D "$binary" "$out/usr/local/bin/deltaweir"
    strip --strip-debug "$out/usr/local/bin/deltaweir"
    install -d "$out/etc/ssl/certs"
    tar --extract --file="$kept" --to-stdout ./etc/ssl/certs/ca-certificates.crt >"$out/etc/ssl/certs/ca-certificates.crt"
    tar --create --owner=0 --group=0 --directory="$work/binary" . | docker import - deltaweir-test/binary
else
    # The crates come along, so that the stage needs no network and nothing of this machine's configuration.
    with_c=.tools/docker/$suite-c.tar
    tests/docker/debian.sh "$with_c" ca-certificates,gcc,libc6-dev,make
    docker import "$with_c" deltaweir-test/c
    prefix=$work/rust/root/usr/local
    mkdir -p "$prefix/rust" "$prefix/cargo"
    cp -r "$(rustc --print sysroot)"/{bin,lib} "$prefix/rust/"
    cargo vendor --locked --quiet --versioned-dirs "$prefix/cargo/vendor" >"$work/vendor.toml"
    cat >"$prefix/cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/usr/local/cargo/vendor"
END
    cat >"$work/rust/Dockerfile" <<'END'
FROM deltaweir-test/c
COPY root/ /
ENV PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/cargo
END
    DOCKER_BUILDKIT=1 docker build --network none --quiet --tag deltaweir-test/rust "$work/rust"
    rm -rf "$work/rust"
fi

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

with_libraries() { # FOLDER PROGRAM…: copies programs and the libraries they need to where they are on this machine (below /usr)
    local folder=$1
    shift
    { printf '%s\n' "$@"; ldd "$@" 2>/dev/null | grep -oE '/[^ :]+\.so[^ :)]*'; } | sort -u |
        while read -r path; do install -D "$path" "$folder/usr/${path#/usr/}"; done
}
image() { # NAME: from the Dockerfile on standard input and the folder of that name
    cat >"$work/$1/Dockerfile"
    DOCKER_BUILDKIT=1 docker build --network host --quiet --tag "deltaweir-test/$1" "$work/$1"
}

installed=$(find /usr/lib/postgresql -maxdepth 1 -name '[0-9]*' | sort -V | tail -1)
version=${installed##*/}
mkdir -p "$work"/postgres/root/usr/{lib,share}/postgresql
cp -r "$installed" "$work/postgres/root/usr/lib/postgresql/"
cp -r "/usr/share/postgresql/$version" "$work/postgres/root/usr/share/postgresql/"
cp -r --parents /usr/share/zoneinfo "$work/postgres/root"
with_libraries "$work/postgres/root" "$installed"/bin/{initdb,postgres,pg_isready}
# What the official image's entry point does with the same variables, as far as compose.cluster.yaml needs it.
cat >"$work/postgres/entrypoint.sh" <<'END'
#!/bin/bash
set -euo pipefail
data=/var/lib/postgresql/data
if [ ! -s "$data/PG_VERSION" ]; then
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB;" | postgres --single -D "$data" postgres
fi
exec postgres -D "$data" -c listen_addresses='*'
END
chmod +x "$work/postgres/entrypoint.sh"
image postgres <<END
FROM deltaweir-test/debian
COPY root/ /
COPY entrypoint.sh /usr/local/bin/
RUN ldconfig && groupadd -g 999 postgres && useradd -u 999 -g 999 postgres \\
    && install -d -o 999 -g 999 -m 700 /var/lib/postgresql/data && install -d -o 999 -g 999 -m 3777 /var/run/postgresql
ENV PATH=/usr/lib/postgresql/$version/bin:/usr/local/bin:/usr/bin:/bin
VOLUME /var/lib/postgresql/data
USER 999:999
ENTRYPOINT ["entrypoint.sh"]
END

mkdir "$work/nginx"
with_libraries "$work/nginx/root" "$(PATH=$PATH:/usr/sbin command -v nginx)"
image nginx <<'END'
FROM deltaweir-test/debian
COPY root/ /
RUN ldconfig
END

mkdir "$work/store"
cp .tools/bin/versitygw "$work/store/"
image store <<'END'
FROM deltaweir-test/debian
COPY versitygw /usr/local/bin/
END
