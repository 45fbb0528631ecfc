#!/bin/sh
# For the Dockerfile's stage `build`: an empty crate around every manifest, so that dependencies are compiled in a layer of their own.
set -eu

for manifest in */Cargo.toml; do
    crate=${manifest%/*}
    mkdir "$crate/src" "$crate/benches"
    touch "$crate/src/lib.rs"
    # Cargo takes no manifest that names a bench without a file.
    sed -n '/^\[\[bench\]\]/,/^$/s/^name = "\(.*\)"$/\1/p' "$manifest" | while read -r bench; do
        echo 'fn main() {}' >"$crate/benches/$bench.rs"
    done
done
echo 'fn main() {}' >proxy/src/main.rs
