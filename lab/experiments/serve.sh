#!/usr/bin/env bash
# Servers of one model under load, in turn: the tables in docs/measurements/serving.md.
#
#   serve.sh LAB OUT NAME=COMMAND…
#
# Each COMMAND starts a server of OpenAI's API at 127.0.0.1:PORT, in the background, where PORT is
# replaced by a number; all servers stay up, and one at a time has work. PROMPTS is a file for
# `lab load`, with TEMPLATE. Each of CLIENTS is measured in RUNS runs of every server, of
# EACH requests a client but LEAST at least, with answers of TOKENS tokens at most.
# OUT gets a JSON file and a table for each number of clients, and the servers' logs.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 2
fi
lab=$1 out=$2
shift 2
clients=${CLIENTS:-1 2 4 8 16 32 64} runs=${RUNS:-3} least=${LEAST:-24} each=${EACH:-2} tokens=${TOKENS:-96}
port=${FIRST_PORT:-18080} prompts=${PROMPTS:?want a file for lab load}
mkdir -p "$out"
pids=() urls=()
trap 'kill "${pids[@]}" 2>/dev/null; wait' EXIT
for s in "$@"; do
  name=${s%%=*} command=${s#*=}
  # shellcheck disable=SC2086 # a command line
  ${command//PORT/$port} >"$out/$name.log" 2>&1 &
  pids+=($!)
  for i in $(seq 300); do
    curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
    kill -0 $! 2>/dev/null && [ "$i" -lt 300 ] || { echo "$name does not serve; $out/$name.log says why" >&2; exit 1; }
    sleep 0.2
  done
  urls+=(--url "$name=http://127.0.0.1:$port/v1")
  port=$((port + 1))
done
for n in $clients; do
  requests=$((n * each > least ? n * each : least))
  "$lab" load "${urls[@]}" --prompts "$prompts" ${TEMPLATE:+--template "$TEMPLATE"} --clients "$n" --requests "$requests" \
    --runs "$runs" --max-tokens "$tokens" ${IGNORE_EOS:+--ignore-eos} --markdown --out "$out/$n.json" --quiet | tee "$out/$n.md"
done
