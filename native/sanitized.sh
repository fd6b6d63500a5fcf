# For asan.sh and tsan.sh, which source it: builds with sanitizers into a scratch folder that goes
# away at the end, and runs tests/native with what was built. PYTHON names the interpreter.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
python=$(command -v "${PYTHON:-$root/.venv/bin/python}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# build SANITIZERS TARGET…: into $scratch/build.
build() {
  local sanitizers=$1 generator=()
  shift
  if command -v ninja > /dev/null; then generator=(-G Ninja); fi
  cmake -S "$here" -B "$scratch/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    "-DHELIOS_SANITIZE=$sanitizers" "-DPython_EXECUTABLE=$python" > "$scratch/configure.log" 2>&1 \
    || { cat "$scratch/configure.log" >&2; exit 1; }
  cmake --build "$scratch/build" --target "$@" --parallel 2 > "$scratch/build.log" 2>&1 \
    || { cat "$scratch/build.log" >&2; exit 1; }
}

# run_tests LIBRARIES [PYTEST ARGUMENTS]: tests/native over the package with the sanitized library in
# place of the ordinary one. LIBRARIES are loaded first.
run_tests() {
  local libraries=$1
  shift
  cp -r "$root/src" "$scratch/src"
  rm -f "$scratch"/src/helios/_native*.so
  cp "$scratch"/build/_native*.so "$scratch/src/helios/"
  mkdir -p "$scratch/tests"
  cp -r "$root/tests/native" "$scratch/tests/"
  touch "$scratch/tests/__init__.py"
  cp "$root/pyproject.toml" "$scratch/"
  cd "$scratch"
  LD_PRELOAD=$libraries PYTHONPATH="$scratch/src" "${launcher[@]}" \
    "$python" -m pytest -p no:cacheprovider tests/native "$@"
}
launcher=(env)
