#!/bin/sh
# Builds retry-budget.wasm beside this file, or with --check compares it with what its
# source builds.
exec "$(dirname "$0")/../compile.sh" go retry-budget "$@"
