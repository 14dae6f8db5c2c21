#!/bin/sh
# Makes the modules beside their texts. With --check, compares instead.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for text in *.wat; do
    flags=
    # These are meant to be invalid.
    case "$text" in invalid.wat | types-do-not-fit.wat) flags=--no-check ;; esac
    wat2wasm $flags "$text" -o "$out/${text%.wat}.wasm"
done
if [ "${1:-}" = "--check" ]; then
    for module in *.wasm; do
        cmp "$module" "$out/$module"
    done
    echo "the guests of runtimetest are what their texts make"
    exit 0
fi
cp "$out"/*.wasm .
