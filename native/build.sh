#!/usr/bin/env bash
# Builds helios._native in place, as src/helios/_native*.so, for development. PYTHON names the
# interpreter to build for (with nanobind installed), BUILD the scratch folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-$root/.venv/bin/python}
build=${BUILD:-$root/build/native}
# One build at a time: several shells may share the folder.
mkdir -p "$(dirname "$build")"
exec 9> "$build.lock"
flock 9
generator=()
if command -v ninja > /dev/null; then generator=(-G Ninja); fi
cmake -S "$here" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
  "-DPython_EXECUTABLE=$(command -v "$python")" > "$build.configure.log" 2>&1 \
  || { cat "$build.configure.log" >&2; exit 1; }
cmake --build "$build" --parallel 2
# A function that is compiled for a wide instruction set outside its namespace could be the copy
# that the linker keeps for all.
for set in avx512 avx2 portable; do
  for object in "$build/CMakeFiles/kernels_$set.dir/kernels/"*.o; do
    [ -e "$object" ] || continue
    if nm -C --defined-only "$object" | grep -E ' [WVu] ' | grep -Ev "helios::$set::|DW.ref."; then
      echo "$object defines shared symbols outside helios::$set" >&2
      exit 1
    fi
  done
done
# Renamed into place: processes that run with the old library keep it.
for library in "$build"/_native*.so; do
  installed=$root/src/helios/$(basename "$library")
  if ! cmp -s "$library" "$installed"; then
    cp "$library" "$installed.new"
    mv "$installed.new" "$installed"
  fi
done
