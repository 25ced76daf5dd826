#!/usr/bin/env bash
# Compares heads trained with eagle alone and with eagle then talf, at equal
# steps, over several seeds: the tables in docs/performance.md.
#
#   losses.sh MODEL LABELS PROMPTS OUT
#
# LABELS is what `talf preprocess` wrote, PROMPTS a file for `talf bench`.
# FIRST and THEN are the steps of the two stages, SEEDS the training seeds, LR the
# learning rate; TEMPLATE and BENCH are for `talf bench`.
set -euo pipefail
model=$1 labels=$2 prompts=$3 out=$4
talf=${TALF:-talf} first=${FIRST:-600} then=${THEN:-600} lr=${LR:-5e-3} seeds=${SEEDS:-1 2 3}
first_loss=${FIRST_LOSS:-eagle} rows=${ROWS:-1024}
bench_flags=${BENCH:---prompt-tokens 16 --max-tokens 64 --temperature 0,1 --ranks 5}
extra=(${TEMPLATE:+--template "$TEMPLATE"})
mkdir -p "$out"
for seed in $seeds; do
  run() { # name, loss, steps, init
    "$talf" train --model "$model" --data "$labels" --out "$out/$1-$seed" --loss "$2" --steps "$3" --rows "$rows" \
      --lr "$lr" --min-lr 0.05 --seed "$seed" --eval-every 0 --save-every 0 ${4:+--init "$4"} --quiet --json > "$out/$1-$seed.json"
  }
  run first "$first_loss" "$first"
  run eagle "$first_loss" "$then" "$out/first-$seed"
  run talf talf "$then" "$out/first-$seed"
  # shellcheck disable=SC2086
  "$talf" bench --model "$model" --head eagle="$out/eagle-$seed" --head talf="$out/talf-$seed" --prompts "$prompts" \
    "${extra[@]}" $bench_flags --out "$out/bench-$seed.json" --markdown --quiet > "$out/bench-$seed.md"
done
