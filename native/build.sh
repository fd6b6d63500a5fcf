#!/usr/bin/env bash
# Builds helios._native in place, as src/helios/_native*.so, for development. PYTHON names the
# interpreter to build for (with nanobind installed), BUILD the scratch folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-$root/.venv/bin/python}
build=${BUILD:-$root/build/native}
generator=()
if command -v ninja > /dev/null; then generator=(-G Ninja); fi
cmake -S "$here" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
  "-DPython_EXECUTABLE=$(command -v "$python")" > "$build.configure.log" 2>&1 \
  || { cat "$build.configure.log" >&2; exit 1; }
cmake --build "$build" --parallel 2
cp "$build"/_native*.so "$root/src/helios/"
