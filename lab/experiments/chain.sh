#!/usr/bin/env bash
# Goes all the way with each model: labels, a head, and decoding with it beside plain decoding. A
# model is a directory or a GGUF file, dense or with experts. It prints the speed-up, checks that
# every answer is plain decoding's, and tells the peak resident set of generating beside the size
# of the weights.
#
#   chain.sh DATA PROMPTS OUT MODEL…
#
# DATA is a file for `talf preprocess`, PROMPTS one for `talf bench`. LABELS are further flags of
# preprocess, TRAIN of train, BENCH of bench. Run again after an interruption, it goes on.
set -euo pipefail
if [ $# -lt 4 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 2
fi
data=$1 prompts=$2 out=$3
shift 3
talf=${TALF:-talf}
labels=(--limit 600) train=(--loss eagle --steps 300 --rows 1024 --lr 3e-3) bench=(--method salf --method auto --max-tokens 96 --limit 8)
[ -z "${LABELS:-}" ] || eval "labels=($LABELS)"
[ -z "${TRAIN:-}" ] || eval "train=($TRAIN)"
[ -z "${BENCH:-}" ] || eval "bench=($BENCH)"

for model in "$@"; do
  name=$(basename "$model" .gguf)
  mkdir -p "$out/$name"
  [ -e "$out/$name/labels/manifest.json" ] || "$talf" preprocess --model "$model" --data "$data" --out "$out/$name/labels" -q "${labels[@]}"
  [ -e "$out/$name/head/done" ] || "$talf" train --model "$model" --data "$out/$name/labels" --out "$out/$name/head" --eval-every 0 -q "${train[@]}"
  touch "$out/$name/head/done"
  echo "== $name"
  "$talf" bench --model "$model" --head "$out/$name/head" --prompts "$prompts" --out "$out/$name/bench.json" "${bench[@]}"
  python3 - "$talf" "$model" "$out/$name/bench.json" <<'P'
import json, os, pathlib, resource, subprocess, sys

talf, model, report = sys.argv[1:]
rows = json.load(open(report))["rows"]
assert rows, f"{report}: no rows"
wrong = sum(r["compared_outputs"] - r["equal_outputs"] for r in rows)
subprocess.run([talf, "generate", "--model", model, "--prompt", "1", "--max-tokens", "16", "--method", "ar"],
               check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
p = pathlib.Path(model)
size = p.stat().st_size if p.is_file() else sum(f.stat().st_size for f in p.glob("*.safetensors"))
print(f"{len(rows)} rows, {wrong} answers that differ; peak resident set {peak / 2**20:.1f} MiB, weights {size / 2**20:.1f} MiB")
sys.exit(wrong > 0)
P
done
