#!/bin/sh
# Run the tests of tensors, maps and the C extension on a build with AddressSanitizer and
# UndefinedBehaviorSanitizer:  tests/sanitizers.sh [python [pytest arguments]]
#
# Python's own allocator is left out, so that every object is seen; leaks are counted by
# test_extension.py, because the interpreter and torch keep memory to their end. Capsules of unknown
# producers are read by write(2) from any address (dlpack/producer.py), on purpose: not reported.
set -eu
python=${1:-python}
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$root/tma_dlpack" "$root/tests" "$root/pyproject.toml" "$copy"
mkdir "$copy/notebooks"
cp "$root"/notebooks/*.json "$copy/notebooks"
cd "$copy"
include=$("$python" -c "import sysconfig; print(sysconfig.get_paths()['include'])")
for module in native/core:native/_core native/inject:debug/trace/_inject; do
  "${CC:-cc}" -std=gnu11 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -fno-omit-frame-pointer -fPIC -shared "-I$include" "tma_dlpack/${module%:*}.c" \
    -o "tma_dlpack/${module#*:}.abi3.so"
done
preload="$("${CC:-cc}" -print-file-name=libasan.so) $("${CC:-cc}" -print-file-name=libubsan.so)"
tests="tests/make/test_crashes.py tests/make/test_extension.py tests/make/test_make.py tests/make/test_batch.py tests/make/test_driver_words.py tests/make/test_stand_in_gpu.py tests/make/test_maps_after_verbs.py tests/make/test_refusals.py tests/make/test_added_dimensions.py tests/make/test_described_maps.py tests/tensor_map/test_tensor_map.py tests/tensor_map/test_foreign_maps.py tests/tensor_map/test_ptx_replace.py tests/consumer tests/dlpack tests/trace"
echo "interceptor_via_lib:libffi" > "$copy/suppressions"
log=log_path=$copy/report # pytest captures what is written to the terminal
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:suppressions=$copy/suppressions:$log"
export UBSAN_OPTIONS="print_stacktrace=1:$log"
LD_PRELOAD=$preload PYTHONMALLOC=malloc \
  PYTHONPATH=$copy "$python" -m pytest -q -p no:cacheprovider ${*:-$tests} || {
  cat "$copy"/report* 2>/dev/null
  exit 1
}
