#!/bin/sh
# Builds resend-cap.wasm beside this file, or with --check compares it with what its
# source builds.
exec "$(dirname "$0")/../compile.sh" assemblyscript resend-cap "$@"
