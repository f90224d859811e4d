#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: the parity of every op and product with the CPU, the same under compute-sanitizer
# where there is one, and a short benchmark. Lies in a folder that bundle.sh made. Ends with 0 where all that ran
# passed; a device is required.
#
#   run.sh [OUT]      OUT: a folder for the logs; as by default `out` beside this script
set -uo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/out}
mkdir -p -- "$out"
failed=()

# cuBLASLt: the bundle's, an installation's, or that of PyTorch's packages.
find_cublaslt() {
  local place
  for place in "$here/lib" /usr/local/cuda*/lib64 /usr/lib/x86_64-linux-gnu \
      $(python3 -c 'import sys; print(*sys.path)' 2>/dev/null | tr ' ' '\n' | sed 's|$|/nvidia/cu13/lib|'); do
    [[ -e $place/libcublasLt.so.13 ]] && { echo "$place"; return 0; }
  done
  return 1
}

cublaslt=$(find_cublaslt) || echo "run: libcublasLt.so.13 is in none of the usual places" >&2
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${cublaslt:+$cublaslt:}$here/lib
# The machine's own C++ library, unless it has none or an older one: others that are loaded may need it newer.
if ldd "$here/cuda_parity_test" 2>&1 | grep -q -E 'not found'; then LD_LIBRARY_PATH+=:$here/lib/cxx; fi
export MILLRACE_CUDA_LIBRARY=$here/libmillrace_cuda.so
export MILLRACE_REQUIRE_DEVICE=1

# stage NAME SECONDS COMMAND...: the output goes to OUT/NAME.log, its end to the terminal where it failed.
stage() {
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  echo "run: $name: exit code $status, $((SECONDS - began)) s"
  if [[ $status -ne 0 ]] && grep -q 'Device not supported' -- "$out/$name.log"; then
    echo "run: $name: it refuses this device: NOT checked"
    return
  fi
  if [[ $status -ne 0 ]]; then
    failed+=("$name")
    tail -n 40 -- "$out/$name.log"
  fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true
stage parity 60 "$here/cuda_parity_test"
grep -h -E 'CUDA backend:|parity cases' -- "$out/parity.log"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
if [[ -n $sanitizer ]]; then
  for tool in memcheck racecheck; do
    stage "sanitizer-$tool" 40 "$sanitizer" --tool "$tool" --error-exitcode 1 \
      "$here/cuda_parity_test" --gtest_filter='CudaParity.EveryCaseAgreesWithTheCpu'
  done
else
  echo "run: no compute-sanitizer here: memory accesses and races are NOT checked"
fi

stage benchmark 40 "$here/device_benchmark" --seconds 0.05
cat -- "$out/benchmark.log"

if [[ ${#failed[@]} -eq 0 ]]; then
  echo "run: everything passed"
else
  echo "run: FAILED: ${failed[*]} (logs in $out)"
  exit 1
fi
