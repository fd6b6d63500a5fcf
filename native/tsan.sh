#!/usr/bin/env bash
# Builds the native library with a thread sanitizer into a scratch folder and runs stress.cpp and
# tests/native under it. Arguments go to pytest. PYTHON names the interpreter.
source "$(dirname "$0")/sanitized.sh"
build thread stress _native
# Address spaces of new kernels are laid out more randomly than older sanitizers can follow.
if setarch -R true 2> /dev/null; then launcher=(setarch -R); fi
TSAN_OPTIONS=halt_on_error=1 "${launcher[@]}" "$scratch/build/stress"
# What is found goes to files: the tests capture what processes print.
export TSAN_OPTIONS=log_path=$scratch/race
run_tests "$(c++ -print-file-name=libtsan.so)" "$@"
if compgen -G "$scratch/race.*" > /dev/null; then
  cat "$scratch"/race.* >&2
  exit 1
fi
