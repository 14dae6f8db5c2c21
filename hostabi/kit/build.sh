#!/bin/sh
# Builds plain.wasm beside this file, or with --check compares it with what its
# source builds. It needs Debian 12's clang 14 and lld 14.
set -eu
cd "$(dirname "$0")"
cc=${DSH_CLANG:-clang-14}
if ! command -v "$cc" >/dev/null; then
    echo "hostabi/kit: plain.wasm is built with clang 14, and there is no $cc" >&2
    [ "${1:-}" = --check ] && [ "${DSH_TEST_TOOLCHAINS:-}" != all ] && exit 0
    exit 1
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$cc" --target=wasm32 -Oz -Wall -Wextra -Werror -nostdlib -Wl,--no-entry -Wl,--strip-all -o "$out/plain.wasm" plain.c
if [ "${1:-}" = --check ]; then
    cmp "$out/plain.wasm" plain.wasm
    echo "hostabi/kit/plain.wasm is what its source builds"
    exit 0
fi
cp "$out/plain.wasm" plain.wasm
ls -l plain.wasm
