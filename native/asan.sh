#!/usr/bin/env bash
# Builds the native library with address and undefined-behaviour sanitizers into a scratch folder
# and runs tests/native under them. Arguments go to pytest. PYTHON names the interpreter.
source "$(dirname "$0")/sanitized.sh"
build address,undefined _native
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
run_tests "$(c++ -print-file-name=libasan.so):$(c++ -print-file-name=libubsan.so)" "$@"
