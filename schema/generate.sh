#!/usr/bin/env bash
# Writes the generated schema modules (needs the `dev` extra). `--check DIR` style freshness is
# done by tests/schema/test_fresh.py, which runs this into a scratch folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../src}
python=${PYTHON:-python3}
mkdir -p "$out/helios/schema"
"$python" -m grpc_tools.protoc "-Ihelios/schema=$here" "--python_out=$out" "--pyi_out=$out" \
  helios/schema/contract.proto helios/schema/execution.proto helios/schema/core.proto
