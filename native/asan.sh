#!/usr/bin/env bash
# Builds the native library with address and undefined-behaviour sanitizers into a scratch folder
# and runs tests/native under them. Arguments go to pytest. PYTHON names the interpreter.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=$(command -v "${PYTHON:-$root/.venv/bin/python}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
generator=()
if command -v ninja > /dev/null; then generator=(-G Ninja); fi
cmake -S "$here" -B "$scratch/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DHELIOS_SANITIZE=address,undefined "-DPython_EXECUTABLE=$python" > "$scratch/configure.log" 2>&1 \
  || { cat "$scratch/configure.log" >&2; exit 1; }
cmake --build "$scratch/build" --parallel 2 > "$scratch/build.log" 2>&1 \
  || { cat "$scratch/build.log" >&2; exit 1; }

# The package with the sanitized library in place of the ordinary one.
cp -r "$root/src" "$scratch/src"
rm -f "$scratch"/src/helios/_native*.so
cp "$scratch"/build/_native*.so "$scratch/src/helios/"
mkdir -p "$scratch/tests"
cp -r "$root/tests/native" "$scratch/tests/"
touch "$scratch/tests/__init__.py"
cp "$root/pyproject.toml" "$scratch/"

cd "$scratch"
LD_PRELOAD="$(c++ -print-file-name=libasan.so):$(c++ -print-file-name=libubsan.so)" \
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
PYTHONPATH="$scratch/src" \
  "$python" -m pytest -p no:cacheprovider tests/native "$@"
