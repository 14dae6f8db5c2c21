#!/bin/sh
# Builds the modules of testdata, or with --check compares them with what their
# sources build, as examples/policies/compile.sh does.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What compile.sh builds stands in a folder beside it.
mkdir -p "$work/guests" "$work/examples/policies"
cp "$here/../../examples/policies/compile.sh" "$work/examples/policies/"
cp -R "$here" "$work/guests/sdk"
for l in c:c:policy.c rust:rs:lib.rs assemblyscript:ts:policy.ts; do
    language=${l%%:*} rest=${l#*:}
    dir=$work/examples/policies/standard-$language
    mkdir -p "$dir"
    sed 's#"\.\./\(c\|rust\)/#"../../../guests/sdk/\1/#' "$here/testdata/standard.${rest%%:*}" >"$dir/${rest#*:}"
    printf '{"abi":"dsh:policy/v1","name":"standard-%s","capabilities":[]}\n' "$language" >"$dir/manifest.json"
    [ "${1:-}" != --check ] || cp "$here/testdata/standard-$language.wasm" "$dir/"
    sh "$work/examples/policies/compile.sh" "$language" "standard-$language" "$@"
    [ "${1:-}" = --check ] || cp "$dir/standard-$language.wasm" "$here/testdata/"
done
