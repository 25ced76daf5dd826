#!/bin/bash
# Trains one head on four nodes of a Slurm cluster, one rank on each: a step has --accum
# batches of every rank. talf is built with MPI, with the mpicc of the Open MPI that is
# loaded here, and starts its ranks with that mpirun:
#
#   CC=mpicc CGO_ENABLED=1 go build -tags mpi ./cmd/talf
#
#   sbatch --export=ALL,MODEL=…,DATA=…,OUT=… docs/deploy/train-slurm.sh
#
#SBATCH --job-name=talf-train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
set -euo pipefail

# The signal goes to this script, two minutes before the time is over: mpirun passes it
# to the ranks, the first saves, and a job that is queued again goes on from there.
stop() { kill -TERM "$pid" 2>/dev/null && wait "$pid"; }
trap stop TERM

mpirun --map-by ppr:1:node --bind-to none --mca odls_base_sigkill_timeout 30 \
  talf train --model "$MODEL" --data "$DATA" --out "$OUT" --threads "$SLURM_CPUS_PER_TASK" --loss talf --steps 20000 --save-every 500 --resume &
pid=$!
wait "$pid"
