#!/usr/bin/env bash
# Runs `linerate load` with LINERATE_LOAD, whose words may be quoted and stand on several lines, and
# keeps the results in LINERATE_OUT. The step fails if a check does.
set -euo pipefail

words=$(printf '%s' "$LINERATE_LOAD" | xargs printf '%s\n') || {
    echo "::error::load: a quote is open in: $LINERATE_LOAD" >&2
    exit 2
}
mapfile -t words <<<"$words"
out=${LINERATE_OUT:-linerate}
mkdir -p "$out"
exec linerate load --annotations github --json "$out/load.json" --html "$out/load.html" \
    --junit "$out/load.xml" "${words[@]}"
