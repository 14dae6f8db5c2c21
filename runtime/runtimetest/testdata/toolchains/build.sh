#!/bin/sh
# Makes the modules beside their sources: clang and lld of Debian 12 (14), and
# AssemblyScript 0.28 with Extism's PDK 1.0 from npm.
set -eu
cd "$(dirname "$0")"
clang --target=wasm32 -Oz -nostdlib -ffreestanding -Wl,--no-entry -Wl,--strip-all -o c.wasm backoff.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp backoff.ts "$work"
(cd "$work" && npm install --silent --no-fund --no-audit assemblyscript@0.28 @extism/as-pdk@1.0 >/dev/null &&
    npx asc backoff.ts --outFile as.wasm --use abort=backoff/abort -O3 --noAssert --runtime stub --exportStart _initialize)
cp "$work/as.wasm" assemblyscript.wasm
