#!/usr/bin/env bash
# The calls of docs/hardware/gpus.md, or those named, in order: bash benchmarks/gpu/calls.sh RESULTS [CALL...]
# A call's document is RESULTS/CALL/gpu.json, the lines of all are in RESULTS/log. OPTIONS are added to each call.
# Further calls: the other steps of benchmarks.gpu by their names, at most 280 s each.
# SITE=site.tar.xz: packages by site.sh, unpacked at the first use. The exit code is 1 if a call failed; the others go on.
set -uo pipefail
results=$(realpath -m "$1"); shift; mkdir -p "$results"
site=${SITE:+$(realpath "$SITE")}; weights=${FRAMEKILN_WEIGHTS:+$(realpath "$FRAMEKILN_WEIGHTS")}
cd "$(dirname "$0")/../.." || exit
work=${WORK:-/var/tmp/framekiln-proof}                  # on this machine's disk: kept for the next calls
export FRAMEKILN_CACHE=${FRAMEKILN_CACHE:-$work/cache}  # of compiled code
export ${weights:+FRAMEKILN_WEIGHTS="$weights"} PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE                           # without bytecode each process computes for 15 s longer
if [ -n "$site" ]; then
  if [ ! -d "$work/site" ]; then
    rm -rf "$work/unpacked" && mkdir -p "$work/unpacked" && tar -C "$work/unpacked" -xJf "$site" || exit
    mv "$work/unpacked" "$work/site"
    python3 -m compileall -q -j 0 "$work/site" pipeline stages benchmarks tests >/dev/null
  fi
  PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH=$PWD/pipeline:$PWD/stages${PYTHONPATH:+:$PYTHONPATH}
failed=0

logged() { # CALL COMMAND...
  local began=$SECONDS code
  "${@:2}" 2>&1 | tee -a "$results/log"
  code=$?
  echo "$1: exit code $code after $((SECONDS - began)) s" | tee -a "$results/log"
  return $code
}

# shellcheck disable=SC2086 # several options
measured() { # CALL SECONDS OPTION...
  python3 -m benchmarks.gpu --work "$work" --out "$results/$1" --limit "$2" "${@:3}" ${OPTIONS:-} 2>&1 >/dev/null
}

proof() { logged "$1" measured "$@" || failed=1; }

for call in ${*:-machine equal tests shares engine capped}; do
  case $call in
    machine) proof machine 60 --only machine ;;
    equal) # compiling, on the cores, goes on beside the step that times nothing
      logged compiled measured compiled 200 --only warm_up &
      proof equal 200 --only equality --eager
      wait $! || failed=1 ;;
    tests) logged tests timeout -k 5 100 python3 -m pytest -q -p no:cacheprovider -m "" -n 5 --dist loadfile --timeout 70 \
      tests/stages/test_*_gpu.py tests/stages/*/test_*_gpu.py || failed=1 ;;
    shares) proof shares 150 --only shares ;;
    engine) proof engine 120 --only engine ;;
    capped) proof capped 210 --only capped ;;
    ceilings | memory | processes | calibration | warm_up | equality) proof "$call" 280 --only "$call" ;;
    *) echo "There is no call $call." >&2; exit 2 ;;
  esac
done
exit $failed
