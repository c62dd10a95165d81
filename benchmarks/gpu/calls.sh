#!/usr/bin/env bash
# The calls of docs/hardware/gpus.md, or those named, in order: bash benchmarks/gpu/calls.sh RESULTS [CALL...]
# A call's document is RESULTS/CALL/gpu.json, the lines of all are in RESULTS/log. OPTIONS are added to each call.
set -uo pipefail
results=$(realpath -m "$1"); shift; mkdir -p "$results"
cd "$(dirname "$0")/../.." || exit
work=${WORK:-/var/tmp/framekiln-proof}                  # on this machine's disk: kept for the next calls
export FRAMEKILN_CACHE=${FRAMEKILN_CACHE:-$work/cache}  # of compiled code
export PYTHONPATH=$PWD/pipeline:$PWD/stages${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE                           # without bytecode each process computes for 15 s longer

proof() { # CALL SECONDS OPTION...
  local began=$SECONDS code
  # shellcheck disable=SC2086 # several options
  python3 -m benchmarks.gpu --work "$work" --out "$results/$1" --limit "$2" "${@:3}" ${OPTIONS:-} 2>&1 >/dev/null | tee -a "$results/log"
  code=$?
  echo "$1: exit code $code after $((SECONDS - began)) s" | tee -a "$results/log"
  return $code
}

for call in ${*:-machine equal shares engine capped}; do
  case $call in
    machine) proof machine 60 --only machine ;;
    equal) # compiling, on the cores, goes on beside the step that times nothing
      proof compiled 200 --only warm_up &
      proof equal 200 --only equality --eager || { wait; echo "Nothing is timed while a result is wrong."; exit 1; }
      wait ;;
    shares) proof shares 150 --only shares ;;
    engine) proof engine 120 --only engine ;;
    capped) proof capped 210 --only capped ;;
    *) echo "There is no call $call." >&2; exit 2 ;;
  esac
done
