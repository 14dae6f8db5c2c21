#!/bin/sh
# Builds no-second-effect.wasm beside this file, or with --check compares it with what its
# source builds.
exec "$(dirname "$0")/../compile.sh" rust no-second-effect "$@"
