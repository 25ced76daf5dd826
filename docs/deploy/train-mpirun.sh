#!/bin/bash
# Trains one head on several hosts with Open MPI, one rank on each: a step has --accum
# batches of every rank. All hosts see the model, the data and talf under the same
# paths, and talf is built with MPI:
#
#   CC=mpicc CGO_ENABLED=1 go build -tags mpi ./cmd/talf
#
# Run again after a failure: --resume goes on from the last checkpoint. mpirun gives
# interrupted ranks one second to save unless it is told otherwise.
#
#   MODEL=… DATA=… OUT=… docs/deploy/train-mpirun.sh host1,host2,host3
set -euo pipefail

hosts=$1
ranks=$(tr ',' '\n' <<<"$hosts" | wc -l)

exec mpirun -n "$ranks" --host "$hosts" --map-by ppr:1:node --bind-to none --mca odls_base_sigkill_timeout 30 \
  talf train --model "$MODEL" --data "$DATA" --out "$OUT" --loss talf --steps 20000 --save-every 500 --accum 1 --resume
