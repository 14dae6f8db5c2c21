#!/bin/sh
# Builds an example policy: compile.sh LANGUAGE NAME [--check]. The kits of
# guests/sdk are used where they stand; `dsh policy new` makes a project that has
# its copy. The same toolchain gives the same bytes: with --check they are
# compared with what is committed. A toolchain that is not here is said and
# passed over with --check, unless DSH_TEST_TOOLCHAINS=all.
set -eu
language=$1 name=$2 check=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$here/$name"

missing() {
    echo "examples/policies/$name: $1" >&2
    [ "$check" = --check ] && [ "${DSH_TEST_TOOLCHAINS:-}" != all ] && exit 0
    exit 1
}

case $language in
rust) # Debian 12's rustc 1.63 and lld 14: packages rustc, libstd-rust-dev-wasm32, lld-14
    rustc=${DSH_RUSTC:-/usr/bin/rustc}
    [ "$("$rustc" --version 2>/dev/null)" = "rustc 1.63.0" ] || missing "it is built with rustc 1.63.0, which is not $rustc"
    "$rustc" --edition 2021 --crate-name "$(echo "$name" | tr - _)" --crate-type cdylib --target wasm32-unknown-unknown \
        -C linker=wasm-ld-14 -C linker-flavor=wasm-ld -C link-arg=-zstack-size=32768 \
        -C opt-level=s -C lto -C codegen-units=1 -C panic=abort -C strip=symbols \
        --remap-path-prefix "$here/$name=$name" --remap-path-prefix "$root=dsh" -o "$out/$name.wasm" lib.rs
    ;;
c) # Debian 12's clang 14 and lld 14: packages clang-14, lld-14
    cc=${DSH_CLANG:-clang-14}
    command -v "$cc" >/dev/null || missing "it is built with clang 14: there is no $cc"
    "$cc" --target=wasm32 -std=c11 -Oz -Wall -Wextra -Werror -nostdlib -ffreestanding -fno-builtin -fvisibility=hidden \
        -Wl,--no-entry -Wl,--strip-all -Wl,-zstack-size=16384 -o "$out/$name.wasm" policy.c "$root/guests/sdk/c/dsh.c"
    ;;
assemblyscript) # Node.js 20 or newer, and the compiler of this version from npm
    version=0.28.20
    cache=${DSH_ASC:-${XDG_CACHE_HOME:-$HOME/.cache}/dsh-asc-$version}
    major=$(node --version 2>/dev/null | sed 's/^v//; s/\..*//')
    [ "${major:-0}" -ge 20 ] || missing "it is built with Node.js 20 or newer"
    [ -d "$cache/node_modules/assemblyscript" ] ||
        npm install --silent --no-audit --no-fund --prefix "$cache" "assemblyscript@$version" || missing "the AssemblyScript compiler cannot be had"
    # The compiler takes paths below its base alone, and its own library beside.
    mkdir "$out/assembly" && cp policy.ts "$out/assembly/" && cp manifest.json "$out/"
    cp -R "$root/guests/sdk/assemblyscript" "$out/assembly/sdk"
    ln -s "$cache/node_modules" "$out/node_modules"
    (cd "$out" && node_modules/.bin/asc assembly/policy.ts -o "$name.wasm" -Oz --runtime stub --exportStart _initialize \
        --use abort=assembly/sdk/kernel/abort --transform ./assembly/sdk/manifest.mjs)
    ;;
go) # the plain toolchain; 3 MB, so that it is not committed
    (cd "$here/$name" && GOOS=wasip1 GOARCH=wasm GOFLAGS=-buildvcs=false go build -trimpath -ldflags="-s -w" -buildmode=c-shared -o "$out/plain.wasm" .)
    if [ "$check" = --check ]; then
        echo "examples/policies/$name builds"
        exit 0
    fi
    (cd "$root" && ${DSH:-go run ./cmd/dsh} policy pack "$out/plain.wasm" --manifest "$here/$name/manifest.json" -o "$out/$name.wasm")
    ;;
*)
    echo "compile.sh: $language is none of rust, c, assemblyscript, go" >&2
    exit 2
    ;;
esac
if [ "$check" = --check ]; then
    if ! cmp "$out/$name.wasm" "$name.wasm"; then
        echo "compile.sh: $name.wasm is not what its source builds: run examples/policies/$name/build.sh and commit it" >&2
        exit 1
    fi
    echo "examples/policies/$name/$name.wasm is what its source builds"
    exit 0
fi
cp "$out/$name.wasm" "$name.wasm"
ls -l "$name.wasm"
