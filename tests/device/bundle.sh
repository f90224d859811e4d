#!/usr/bin/env bash
# What run.sh needs on a machine that has a GPU and nothing of ours, in one folder:
#
#   tests/device/bundle.sh BUILD DIR [--with-cublaslt]
#
# BUILD is the folder of a build with the preset cuda, with the targets millrace_cuda, cuda_parity_test and
# device_benchmark. Their shared libraries go along, but for glibc (the machine's own must not be older) and
# cuBLASLt, which has half a gigabyte and is part of every CUDA installation and of PyTorch.
set -euo pipefail

usage() { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
[[ $# -eq 2 || ($# -eq 3 && $3 == --with-cublaslt) ]] || usage
build=$1
dir=$2
leave='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv)[.-]'
[[ $# -eq 3 ]] || leave+='|^libcublasLt\.'

mkdir -p -- "$dir/lib/cxx"
for file in cuda_parity_test device_benchmark libmillrace_cuda.so; do
  [[ -f $build/$file ]] || { echo "bundle: $build/$file is not built" >&2; exit 2; }
  cp -- "$build/$file" "$dir/"
done
cp -- "$(dirname -- "${BASH_SOURCE[0]}")/run.sh" "$dir/"

ldd "$dir/cuda_parity_test" "$dir/device_benchmark" "$dir/libmillrace_cuda.so" |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    name=$(basename -- "$library")
    case $name in
      libstdc++.* | libgcc_s.*) cp -L -- "$library" "$dir/lib/cxx/" ;;  # only where the machine's are too old
      *) [[ $name =~ $leave ]] || cp -L -- "$library" "$dir/lib/" ;;
    esac
  done
echo "bundle: $(du -sh -- "$dir" | cut -f1) in $dir; there: bash $dir/run.sh"
