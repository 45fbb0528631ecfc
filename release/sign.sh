#!/usr/bin/env bash
# release/sign.sh: over what lies in results/release (or $RELEASE_OUT): an installer that carries the key and the version,
# SHA256SUMS, and its signature, which `cosign verify-blob --key` and openssl verify alike.
#   $RELEASE_KEY   the private key (EC P-256, PEM) outside this repository; without it one is made for you and kept in
#                  ~/.config/deltaweir-release/key.pem
#   $RELEASE_URL   where the files will be published; the installer's default for --from
set -euo pipefail
cd "$(dirname "$0")/.."
. release/names.sh

key=${RELEASE_KEY:-${XDG_CONFIG_HOME:-$HOME/.config}/deltaweir-release/key.pem}
case $(realpath --canonicalize-missing "$key") in
    "$PWD"/*) echo "release/sign.sh: $key is inside the repository; a private key does not belong there" >&2; exit 1 ;;
esac
if [ ! -e "$key" ]; then
    [ -z "${RELEASE_KEY:-}" ] || { echo "release/sign.sh: there is no key at $key" >&2; exit 1; }
    mkdir -p -m 700 "$(dirname "$key")"
    (umask 077 && openssl ecparam -name prime256v1 -genkey -noout -out "$key")
    echo "made a key of yours: $key" >&2
fi
case $(stat --format=%a "$key") in
    *00) ;;
    *) echo "release/sign.sh: others may read $key (chmod 600)" >&2; exit 1 ;;
esac

public=$(openssl pkey -in "$key" -pubout)
installer=$(<release/install.sh)
installer=${installer/@VERSION@/"$version"}
installer=${installer/@FROM@/"${RELEASE_URL:-}"}
installer=${installer/@KEY@/"$public"}
printf '%s\n' "$installer" >"$out/install.sh"
chmod 755 "$out/install.sh"
printf '%s\n' "$public" >"$out/deltaweir.pub"

cd "$out"
rm -f SHA256SUMS SHA256SUMS.sig
names=(deltaweir-"$version"-* deltaweir_"$version"_* install.sh)
for name in "${names[@]}"; do
    [ -f "$name" ] && sha256sum "$name"
done >.sums
[ "$(wc -l <.sums)" -gt 1 ] || { echo "release/sign.sh: nothing to sign in $out" >&2; exit 1; }
mv .sums SHA256SUMS
openssl dgst -sha256 -sign "$key" SHA256SUMS | openssl base64 -A >SHA256SUMS.sig
echo >>SHA256SUMS.sig
openssl base64 -d -in SHA256SUMS.sig -out .signature
openssl dgst -sha256 -verify deltaweir.pub -signature .signature SHA256SUMS >/dev/null
rm .signature
echo "signed $(wc -l <SHA256SUMS) files in $out; key $(openssl pkey -pubin -in deltaweir.pub -outform DER | sha256sum | cut -d' ' -f1)" >&2
