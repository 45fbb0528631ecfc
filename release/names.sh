# Sourced by the scripts beside it: the names that a release goes by, and where its files are made.
# shellcheck shell=bash disable=SC2034
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
out=${RELEASE_OUT:-$PWD/results/release}
tools=${RELEASE_TOOLS:-$PWD/.tools/release}
commit=$(git rev-parse --short=12 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || commit=$commit-changed
# Times in archives are the commit's, so that whoever builds the same commit gets the same files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

platform() { # TARGET: the end of its archives' names
    case $1 in
        x86_64-unknown-linux-musl) echo linux-x86_64 ;;
        aarch64-unknown-linux-musl) echo linux-aarch64 ;;
        *) echo "no release is made for $1" >&2; return 2 ;;
    esac
}

architecture() { # TARGET: as Debian and Docker call it
    case $1 in
        x86_64-*) echo amd64 ;;
        aarch64-*) echo arm64 ;;
    esac
}

packed() { # ARCHIVE FOLDER NAME…: a tar file that depends on nothing but what is in it
    local archive=$1 folder=$2
    shift 2
    tar --create --directory="$folder" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" "$@" | gzip -9 --no-name >"$archive.new"
    mv "$archive.new" "$archive"
}
