#!/usr/bin/env bash
# Compares losses from one start: heads trained with FIRST_LOSS, and from each of
# them one head a loss, over several seeds: the tables in docs/measurements/losses.md.
#
#   losses.sh MODEL LABELS PROMPTS OUT
#
# LABELS is what `talf preprocess` wrote, PROMPTS a file for `talf bench`.
# FIRST are the steps of the start, THEN those of each loss, as LOSS=STEPS: the same
# number, or what takes the same time (`talf inspect metrics` tells what it took).
# SEEDS are the training seeds, FIRST_LR and LR the learning rates, FIRST_ROWS and ROWS the
# positions of a batch, FIRST_WARMUP and WARMUP the steps of warm-up; TEMPLATE and BENCH are for
# `talf bench`, BENCH with the methods. Run again after an interruption, it goes on.
set -euo pipefail
if [ $# != 4 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 2
fi
model=$1 labels=$2 prompts=$3 out=$4
talf=${TALF:-talf} first=${FIRST:-600} then=${THEN:-eagle=600 talf=600} seeds=${SEEDS:-1 2 3}
first_loss=${FIRST_LOSS:-eagle} rows=${ROWS:-1024} threads=${THREADS:-0} lr=${LR:-5e-3}
first_lr=${FIRST_LR:-$lr} first_rows=${FIRST_ROWS:-$rows} warmup=${WARMUP:-50}
first_warmup=${FIRST_WARMUP:-$warmup}
bench_flags=${BENCH:---prompt-tokens 16 --max-tokens 64 --temperature 0,1 --ranks 5 --method beam:paper --method optimal:paper --method salf:paper}
extra=(${TEMPLATE:+--template "$TEMPLATE"})
mkdir -p "$out"
for seed in $seeds; do
  run() { # name, loss, steps, learning rate, positions, warm-up, init
    [ -s "$out/$1-$seed.json" ] && return
    "$talf" train --model "$model" --data "$labels" --out "$out/$1-$seed" --loss "$2" --steps "$3" --rows "$5" \
      --lr "$4" --min-lr 0.05 --warmup "$6" --seed "$seed" --eval-every 0 --save-every 100 --threads "$threads" ${7:+--init "$7"} \
      --resume --quiet --json > "$out/$1-$seed.json.part"
    mv "$out/$1-$seed.json.part" "$out/$1-$seed.json"
  }
  run first "$first_loss" "$first" "$first_lr" "$first_rows" "$first_warmup"
  heads=()
  for t in $then; do
    loss=${t%=*} name=${t%%[:=]*}
    run "$name" "$loss" "${t##*=}" "$lr" "$rows" "$warmup" "$out/first-$seed"
    heads+=(--head "$name=$out/$name-$seed")
  done
  # shellcheck disable=SC2086
  "$talf" bench --model "$model" "${heads[@]}" --prompts "$prompts" \
    "${extra[@]}" $bench_flags --out "$out/bench-$seed.json" --markdown --quiet > "$out/bench-$seed.md"
done
