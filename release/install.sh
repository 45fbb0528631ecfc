#!/bin/sh
# Installs deltaweir, a static binary for Linux, and nothing that this release's key did not sign.
#   sh install.sh [--from URL-OR-FOLDER] [--to FOLDER]
# --from: where the release's files are; the release's own address when that was told to `make release`
# --to:   where the binary goes: /usr/local/bin for root, ~/.local/bin for others
# Needs openssl, tar, sha256sum, and curl or wget when the files are not on this machine. Changes nothing else: remove the binary
# and it is gone. release/sign.sh fills in the version, the address and the key.
set -eu

version='@VERSION@'
from='@FROM@'
key='@KEY@'

to=''
while [ $# -gt 0 ]; do
    case $1 in
        --from) from=${2:?"--from needs an address or a folder"}; shift 2 ;;
        --to) to=${2:?"--to needs a folder"}; shift 2 ;;
        *) echo "usage: sh install.sh [--from URL-OR-FOLDER] [--to FOLDER]" >&2; exit 2 ;;
    esac
done

refuse() { echo "install.sh: $*. Nothing was installed." >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

case $key in
    *'PUBLIC KEY'*) ;;
    *) refuse 'this copy carries no key; take the one that lies with a release' ;;
esac
[ -n "$from" ] || refuse 'say where the release is: --from URL-OR-FOLDER'
for needed in openssl tar sha256sum; do
    have "$needed" || refuse "$needed is missing (Debian: apt-get install $needed)"
done
[ "$(uname -s)" = Linux ] || refuse 'this is not Linux'
case $(uname -m) in
    x86_64 | amd64) platform=linux-x86_64 ;;
    aarch64 | arm64) platform=linux-aarch64 ;;
    *) refuse "there is no binary for $(uname -m)" ;;
esac
if [ -z "$to" ]; then
    if [ "$(id -u)" -eq 0 ]; then to=/usr/local/bin; else to=${HOME:?}/.local/bin; fi
fi

work=$(mktemp -d)
new=''
trap 'rm -rf "$work"; [ -z "$new" ] || rm -f "$new"' EXIT
trap 'exit 130' HUP INT TERM

fetch() { # NAME: that file of the release, into the work folder
    case $from in
        http://* | https://*)
            if have curl; then
                curl --fail --silent --show-error --location --retry 3 --output "$work/$1" "$from/$1"
            elif have wget; then
                wget --quiet --output-document="$work/$1" "$from/$1"
            else
                refuse 'curl or wget is missing'
            fi
            ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac || refuse "$1 cannot be had from $from"
}

name=deltaweir-$version-$platform
archive=$name.tar.gz
fetch SHA256SUMS
fetch SHA256SUMS.sig
printf '%s\n' "$key" >"$work/key.pem"
openssl base64 -d -in "$work/SHA256SUMS.sig" -out "$work/signature" 2>/dev/null || :
openssl dgst -sha256 -verify "$work/key.pem" -signature "$work/signature" "$work/SHA256SUMS" >/dev/null 2>&1 ||
    refuse 'the list of checksums is not signed by the key of this release'

# The list is the signer's from here on; a name that it has not, or has twice, is not installed.
wanted=$(awk -v name="$archive" '$2 == name { print $1 }' "$work/SHA256SUMS")
[ ${#wanted} -eq 64 ] || refuse "the signed list does not name $archive once"
fetch "$archive"
got=$(sha256sum "$work/$archive")
[ "${got%% *}" = "$wanted" ] || refuse "$archive is not the file that was signed"

tar -xzf "$work/$archive" -C "$work" "$name/deltaweir" || refuse "$archive holds no binary"
told=$("$work/$name/deltaweir" --version) || refuse 'the binary does not run on this machine'
mkdir -p "$to" || refuse "$to cannot be made"
new=$to/.deltaweir.$$
cp "$work/$name/deltaweir" "$new" && chmod 755 "$new" && mv -f "$new" "$to/deltaweir" || refuse "$to cannot be written"
new=''

echo "$told is at $to/deltaweir"
case :$PATH: in
    *":$to:"*) echo 'Try it: deltaweir demo' ;;
    *) echo "Try it: $to/deltaweir demo" ;;
esac
