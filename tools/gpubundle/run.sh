#!/bin/sh
# Measures talf on this machine's first NVIDIA GPU and writes report.json and
# report.md. It needs a driver, and nothing else; where python3 has torch and
# transformers, they are measured beside it.
#
# Usage: ./run.sh [DIRECTORY]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-report}
mkdir -p "$out"
out=$(cd "$out" && pwd)
echo "writing to $out" >&2
(nvidia-smi || echo "there is no nvidia-smi") >"$out/nvidia-smi.txt" 2>&1
if python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null; then
	python3 "$here/transformers_speed.py" "$out/transformers.json" || echo "transformers failed: its figures are missing" >&2
	# Their wheels bring cuBLAS.
	blas=$(python3 -c 'import nvidia.cublas; print(list(nvidia.cublas.__path__)[0] + "/lib")' 2>/dev/null || true)
	[ -z "$blas" ] || export LD_LIBRARY_PATH="$blas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
	echo "python3 with torch, CUDA and transformers is not here: nothing is measured beside talf" >&2
fi
# A failed check is in the report, and in the status.
status=0
(cd "$out" && TALF_GPU_BUNDLE="$out" TALF_GPU_PEERS="$out/transformers.json" \
	"$here/talf-gpu.test" -test.run '^TestGPUBundleOnACUDADevice$' -test.timeout 2h -test.v >"$out/log.txt" 2>&1) || status=$?
[ -f "$out/report.md" ] || { tail -n 40 "$out/log.txt" >&2; echo "no report was written" >&2; exit 1; }
cat "$out/report.md"
exit $status
