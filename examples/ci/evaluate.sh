#!/usr/bin/env bash
# Run or resume a recipe, hold its gates, and write what a CI job shows and keeps.
#
#   evaluate.sh RECIPE [OUTPUT] [argument of `orchestrator run` ...]
#
# OUTPUT (default: evaluation) gets run/ (keep it between jobs: nothing is asked twice), report.html, gate.xml (JUnit) and summary.md. Ends with the exit code
# of `orchestrator run`: 0, 4 where a gate fails, 5 where one is not known yet, 3 where units failed, 2 for a fault in the recipe.
set -uo pipefail
recipe=${1:?"usage: evaluate.sh RECIPE [OUTPUT] [argument ...]"}
output=${2:-evaluation}
shift "$(($# < 2 ? $# : 2))"

mkdir -p "$output"
rm -f "$output"/{report.html,gate.xml,summary.md}
orchestrator run "$recipe" --run-dir "$output/run" --display plain --html "$output/report.html" "$@"
code=$?
if [ -e "$output/run/store.sqlite" ]; then
  {
    echo "## $(basename "$recipe"): exit code $code"
    echo
    orchestrator report "$output/run" --format markdown
  } > "$output/summary.md"
  # A recipe without gates has no verdict; `run` has held the others.
  orchestrator gate "$output/run" --junit "$output/gate.xml" --summary "$output/summary.md" > "$output/gate.log" 2>&1
  [ -e "$output/gate.xml" ] || rm -f "$output/gate.log"
  cat "$output/summary.md" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
fi
exit "$code"
