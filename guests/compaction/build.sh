#!/bin/sh
# Builds compaction.wasm and its digest beside this file, or with --check compares
# them with what their source builds.
exec "$(dirname "$0")/../rust/compile.sh" compaction "$@"
