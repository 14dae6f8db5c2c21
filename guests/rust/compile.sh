#!/bin/sh
# Builds a built-in policy and its digest in the policy's folder. The same
# toolchain gives the same bytes from any folder: Debian 12's rustc 1.63 and
# lld 14 (packages rustc, libstd-rust-dev-wasm32, lld-14).
#
#   compile.sh NAME          rebuilds ../NAME/NAME.wasm and NAME.wasm.sha256
#   compile.sh NAME --check  builds elsewhere and compares with what is there
set -eu
name=$1
there=$(cd "$(dirname "$0")/../$name" && pwd)
rustc=${DSH_RUSTC:-/usr/bin/rustc}
want="rustc 1.63.0"
have=$("$rustc" --version)
if [ "$have" != "$want" ]; then
    echo "compile.sh: $rustc is \"$have\", and the module is built with \"$want\"" >&2
    exit 1
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# The stack is small on purpose: every fresh instance pays for it.
cd "$there"
"$rustc" --edition 2021 --crate-name "$name" --crate-type cdylib \
    --target wasm32-unknown-unknown \
    -C linker=wasm-ld-14 -C linker-flavor=wasm-ld \
    -C opt-level=s -C lto -C codegen-units=1 -C panic=abort -C strip=symbols \
    -C link-arg=-zstack-size=16384 \
    --remap-path-prefix "$there=$name" \
    -o "$out/$name.wasm" src/lib.rs
(cd "$out" && sha256sum "$name.wasm" >"$name.wasm.sha256")
if [ "${2:-}" = "--check" ]; then
    for f in "$name.wasm" "$name.wasm.sha256"; do
        if ! cmp "$out/$f" "$there/$f"; then
            echo "compile.sh: $f is not what its source builds: run guests/$name/build.sh and commit it" >&2
            exit 1
        fi
    done
    echo "guests/$name/$name.wasm is what its source builds"
    exit 0
fi
cp "$out/$name.wasm" "$out/$name.wasm.sha256" "$there/"
ls -l "$there/$name.wasm"
