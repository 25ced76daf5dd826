#!/usr/bin/env bash
# Times tokenizers on one core, in turn: the table in docs/measurements/tokenizers.md.
#
#   tokenizers.sh TEXT DIR…
#
# DIRs hold a tokenizer.json each. PYTHON needs the package tokenizers. CORE is the
# core to run on; ARGS goes to tokspeed.py.
set -euo pipefail
text=$(realpath "$1")
shift
files=()
for dir; do files+=("$(realpath "$dir/tokenizer.json")"); done
cd "$(dirname "$0")/../.."
bench=$(mktemp -d)
trap 'rm -rf "$bench"' EXIT
(cd tools/tokbench && go build -o "$bench/tokbench" .)
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false GOMAXPROCS=1
# shellcheck disable=SC2086
taskset -c "${CORE:-0}" "${PYTHON:-python3}" lab/experiments/tokspeed.py ${ARGS:-} "$bench/tokbench" "$text" "${files[@]}"
