#!/bin/bash
# Labels text with Open MPI: one rank on each host, each labels every n-th shard of a
# directory that all of them see. The ranks do not talk to each other; mpirun only
# starts and numbers them. Run again after a failure: finished shards are kept.
#
#   MODEL=… DATA=… OUT=… docs/deploy/preprocess-mpirun.sh host1,host2,host3
set -euo pipefail

hosts=$1
ranks=$(tr ',' '\n' <<<"$hosts" | wc -l)

exec mpirun -n "$ranks" --host "$hosts" --map-by ppr:1:node --bind-to none \
  talf preprocess --model "$MODEL" --data "$DATA" --out "$OUT"
