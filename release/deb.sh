#!/usr/bin/env bash
# release/deb.sh ARCHITECTURE FOLDER: the Debian package of what an archive holds (release/build.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=${1:?amd64 or arm64}
folder=${2:?"the folder that holds the binary"}
. release/names.sh

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
install -D "$folder/deltaweir" "$root/usr/bin/deltaweir"
install -D --mode=644 release/deltaweir.service "$root/lib/systemd/system/deltaweir.service"
install -D --mode=640 release/deltaweir.toml "$root/etc/deltaweir/deltaweir.toml"
install -d "$root/usr/share/man/man1"
for page in "$folder"/man/*.1; do gzip -9 --no-name <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"; done
install -D --mode=644 "$folder/completions/deltaweir.bash" "$root/usr/share/bash-completion/completions/deltaweir"
install -D --mode=644 "$folder/completions/deltaweir.zsh" "$root/usr/share/zsh/vendor-completions/_deltaweir"
install -D --mode=644 "$folder/completions/deltaweir.fish" "$root/usr/share/fish/vendor_completions.d/deltaweir.fish"
documents=$root/usr/share/doc/deltaweir
install -D --mode=644 "$folder/deltaweir.cdx.json" "$documents/deltaweir.cdx.json"
cat >"$documents/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: deltaweir

Files: *
Copyright: the authors of deltaweir
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
END
chmod 644 "$documents/copyright"

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: deltaweir
Version: $version
Architecture: $architecture
Maintainer: The authors of deltaweir <deltaweir@invalid>
Installed-Size: $(du --summarize --apparent-size --block-size=1024 "$root" | cut -f1)
Depends: adduser
Recommends: ca-certificates
Section: net
Priority: optional
Description: S3 endpoint that stores less
 An S3 server that keeps each object as a verified delta against the most
 similar object it already holds, compressed, or unchanged, whichever is
 smallest; on a local disk or in a bucket of another store.
END
echo /etc/deltaweir/deltaweir.toml >"$root/DEBIAN/conffiles"
install release/debian/postinst release/debian/prerm release/debian/postrm "$root/DEBIAN/"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=$out/deltaweir_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package.new" >/dev/null
mv "$package.new" "$package"
echo "made $package" >&2
