#!/usr/bin/env bash
# Measures every draft method and verifier side by side, and the publications'
# tables: the figures of docs/methods.md.
#
#   methods.sh MODEL OUT NAME=PROMPTS...
#
# HEADS are draft heads as NAME=CKPT, those of losses by their names; DRAFT is a
# small language model as NAME=DIR, DATASTORE one for rest. TEMPLATE is for `lab
# bench`, and LAB that program. PROMPTS are counted of each set for the table of all methods, FEW for the
# papers' tables, sweeps and the deepened target of LAYERS layers. MAX is the
# longest answer, SEEDS the seeds at temperatures above 0, REPEAT how often all is
# run. STEPS are what to do: methods, deep, papers, sweeps.
#
# Every step keeps a log in OUT and goes on from it when it is run again. OUT gets
# <step>.md, .json and .svg.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 2
fi
model=$1 out=$2
shift 2
lab=${LAB:-lab} prompts=${PROMPTS:-20} few=${FEW:-4} max=${MAX:-128} layers=${LAYERS:-148} repeat=${REPEAT:-1}
seeds=${SEEDS:-0} steps=${STEPS:-methods deep papers sweeps}
what=(--model "$model" --max-tokens "$max" ${TEMPLATE:+--template "$TEMPLATE"})
for h in ${HEADS:-}; do what+=(--head "$h"); done
for d in ${DRAFT:-}; do what+=(--draft "$d"); done
for set in "$@"; do what+=(--prompts "$set"); done
store=(${DATASTORE:+--datastore "$DATASTORE"})
mkdir -p "$out"

# bench STEP LIMIT FLAG...: one prompt of each set warms up.
bench() {
  local step=$1 limit=$2
  shift 2
  "$lab" bench "${what[@]}" "${store[@]}" --limit $((limit + 1)) --warmup 1 --seed "$seeds" --repeat "$repeat" "$@" \
    --log "$out/$step.log" --out "$out/$step.json" --plot "$out/$step.svg" --markdown > "$out/$step.md.part"
  mv "$out/$step.md.part" "$out/$step.md"
}

for step in $steps; do
  case $step in
    methods) bench methods "$prompts" --temperature 0,1 --paper talf --paper salf:t1 --paper goose:t3 --paper traversal:t2 --paper dynatree:t1 --paper dynatree:t2 --paper dynatree:t3 ;;
    deep) bench deep "$few" --temperature 0,1 --layers "$layers" --paper talf --paper salf:t1 --paper salf:t4 --paper traversal:t2 --paper traversal:t3 --paper dynatree:t1 --paper dynatree:t4 ;;
    papers) bench papers "$few" --paper salf --paper goose --paper traversal --paper dynatree ;;
    sweeps)
      if [ ! -e "$out/sweeps.rec" ]; then
        "$lab" record "${what[@]}" --limit $((few + 1)) --warmup 1 --layers "$layers" --nodes 128 \
          --method linear --method static:binary-5 --method recycle:rows --method goose --method pld --method auto --out "$out/sweeps.rec"
      fi
      "$lab" replay "$out/sweeps.rec" --paper salf:t4 --paper dynatree:t4 --paper dynatree:fig7 --paper dynatree:fig8 --paper goose:t2 --paper goose:fig4b --paper talf:auto --paper talf:budgets \
        --out "$out/sweeps.json" --plot "$out/sweeps.svg" --markdown > "$out/sweeps.md"
      ;;
    *) echo "unknown step $step: want methods, deep, papers or sweeps" >&2; exit 2 ;;
  esac
  echo "$out/$step.md"
done
