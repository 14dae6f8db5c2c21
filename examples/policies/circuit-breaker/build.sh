#!/bin/sh
# Builds circuit-breaker.wasm beside this file, or with --check compares it with what its
# source builds.
exec "$(dirname "$0")/../compile.sh" rust circuit-breaker "$@"
