#!/usr/bin/env bash
# Measures talf on this machine's first NVIDIA GPU and writes DIRECTORY/report.json and
# report.md. It needs a driver, and nothing else; where python3 has torch and
# transformers, or vLLM, they are measured beside it.
#
# Usage: ./run.sh [--dry-run] [DIRECTORY [PART...]]
#
# Every part is a process of at most 600 seconds (TALF_GPU_LIMIT says another number),
# whose output is in DIRECTORY/logs. What fails is in the report, and in the status. A
# dry run takes tiny shapes on the emulated device of the bundle.
set -euo pipefail

usage() {
  sed -n 's/^# Usage: /usage: /p' "$0" >&2
  exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
limit=${TALF_GPU_LIMIT:-600}
[[ $limit =~ ^[1-9][0-9]*$ ]] || { echo "TALF_GPU_LIMIT is \"$limit\", want a number of seconds" >&2; exit 2; }
dry=()
all=(checks conformance trees shape-0.5B shape-1B shape-8B head torch vllm)
if [[ ${1:-} == --dry-run ]]; then
  shift
  dry=(--dry-run)
  all=(checks conformance trees shape-tiny head torch)
  export TALF_GPU_DRY=1 LD_LIBRARY_PATH="$here/emulated${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
[[ ${1:-} != -* ]] || usage
out=${1:-report}
[[ $# == 0 ]] || shift
parts=("${all[@]}")
[[ $# == 0 ]] || parts=("$@")
for part in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $part "* ]] || { echo "there is no part $part: want some of ${all[*]}" >&2; exit 2; }
done
command -v timeout >/dev/null || { echo "run.sh needs the command timeout" >&2; exit 2; }

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -rf "$out/parts" "$out/logs" "$out/work" "$out/report.json" "$out/report.md" "$out/torch.json" "$out/vllm.json"
mkdir -p "$out/parts" "$out/logs" "$out/work"
trap 'rm -rf "$out/work"' EXIT
# Labels and heads of the measuring lie where there is room for the report.
export TMPDIR="$out/work" TALF_GPU_BUNDLE="$out"
echo "writing to $out" >&2
(nvidia-smi || echo "there is no nvidia-smi") >"$out/logs/nvidia-smi.txt" 2>&1

# python MODULES: python3 has them, and torch a GPU or a dry run none to use.
python() {
  local cuda="import torch; assert torch.cuda.is_available()"
  [[ ${#dry[@]} == 0 ]] || cuda="import torch"
  command -v python3 >/dev/null && timeout 120 python3 -c "$cuda; import $1" >/dev/null 2>&1
}

# measure PART runs a part, which says where it was if its time is up.
measure() {
  local part=$1 tests='^TestGPUBundleOnACUDADevice$'
  # The emulated device takes minutes for all of it.
  [[ $part != conformance || ${#dry[@]} == 0 ]] || tests+='/^conformance/^(Gemm|MoveKV|TopK|passes)'
  (cd "$out/work" && TALF_GPU_PART=$part timeout -s QUIT -k 30 "$limit" "$here/talf-gpu.test" \
    -test.run "$tests" -test.timeout 0 -test.v)
}

# Wheels of PyTorch bring cuBLAS.
if [[ ${#dry[@]} == 0 ]]; then
  if blas=$(python3 -c 'import nvidia.cublas; print(list(nvidia.cublas.__path__)[0] + "/lib")' 2>/dev/null); then
    export LD_LIBRARY_PATH="$blas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  fi
fi

status=0 ran=() peers=""
for part in "${parts[@]}"; do
  log="$out/logs/$part.txt"
  began=$SECONDS
  case $part in
  torch | vllm)
    modules=torch
    [[ $part == torch ]] || modules=torch,vllm
    if ! python "$modules"; then
      echo "$part: python3 has no ${modules//,/ and } with a GPU: it is not measured beside talf" | tee "$log" >&2
      continue
    fi
    # What it measured before it failed counts.
    if timeout -k 30 "$limit" python3 "$here/${part}_speed.py" ${dry[@]+"${dry[@]}"} "$out/$part.json" >"$log" 2>&1; then
      verdict=ok
    else
      verdict="failed: some of its figures are missing"
      status=1
    fi
    [[ ! -s $out/$part.json ]] || peers="$peers${peers:+:}$out/$part.json"
    ;;
  *)
    ran+=("$part")
    if measure "$part" >"$log" 2>&1; then verdict=ok; else verdict=FAILED status=1; fi
    ;;
  esac
  echo "$part: $verdict in $((SECONDS - began)) s: $log" >&2
done

export TALF_GPU_PARTS="${ran[*]-}" TALF_GPU_PEERS="$peers"
measure report >"$out/logs/report.txt" 2>&1 || status=1
if [[ ! -s $out/report.md ]]; then
  tail -n 40 "$out/logs/report.txt" >&2
  echo "no report was written" >&2
  exit 1
fi
cat "$out/report.md"
exit "$status"
