#!/bin/bash
# Labels text in a Slurm array of eight tasks, which all write to one directory on a
# shared file system. Each labels every eighth shard; the last to end joins them.
# A task that was lost is submitted again alone: sbatch --array=3 …
#
#   sbatch --export=ALL,MODEL=…,DATA=…,OUT=… docs/deploy/preprocess-slurm.sh
#
#SBATCH --job-name=talf-preprocess
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
set -euo pipefail

# The signal goes to this script, two minutes before the time is over: talf keeps the
# finished shards, and a task that is queued again goes on behind them.
stop() { kill -TERM "$pid" 2>/dev/null && wait "$pid"; }
trap stop TERM

talf preprocess --model "$MODEL" --data "$DATA" --out "$OUT" \
  --shard-index "$SLURM_ARRAY_TASK_ID" --shard-count 8 --threads "$SLURM_CPUS_PER_TASK" &
pid=$!
wait "$pid"
