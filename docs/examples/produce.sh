#!/usr/bin/env bash
# JSON lines from stdin into one partition, each exactly once and in their order. Needs curl.
#   produce.sh URL TOPIC PARTITION <lines
# The simple way of docs/produce.md: an Idempotency-Key for each batch, one request at a time.
# Says where each batch is stored; ends with 0 only if all are.
set -euo pipefail
records="$1/v1/topics/$2/partitions/$3/records"
batch_lines=${BATCH_LINES:-100}
give_up_s=600 # well within the 15 minutes for which a node remembers a key

run=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n') # so that no other run has the same keys
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

post() { # post KEY: one attempt; prints the status, 000 if there was no whole answer
    curl -sS --max-time 40 -o "$work/answer" -D "$work/head" -w '%{http_code}' --data-binary @"$work/body" \
        -H 'Content-Type: application/x-ndjson' -H "Idempotency-Key: $1" "$records" 2>"$work/error" || echo " 000"
}

pause() { # pause ATTEMPT: as long as the node says, or 50 ms doubled each time up to 2 s, give or take a half
    local asked_s
    asked_s=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]*\).*/\1/p' "$work/head" 2>/dev/null) || true
    sleep "${asked_s:-$(awk -v n="$1" -v r="$RANDOM" 'BEGIN {
        p = 0.05 * 2 ^ n; print (p < 2 ? p : 2) * (0.5 + r / 32768) }')}"
}

send() { # send KEY FIRST LAST: the same bytes under the same key until the answer says what became of them
    local attempt=0 since=$SECONDS status offset
    while :; do
        rm -f "$work/head" "$work/answer"
        status=$(post "$1")
        case ${status##* } in
        200) # curl takes a head that was cut off for a whole answer, so look whether it is one
            if offset=$(grep -o '"base_offset":[0-9]*' "$work/answer" 2>/dev/null | cut -d: -f2); then break; fi
            ;;
        408 | 429 | 5?? | 000) ;; # may be stored or not: asking again finds out
        *)
            echo "refused for good: $(cat "$work/answer")" >&2
            exit 1
            ;;
        esac
        if [ $((SECONDS - since)) -gt "$give_up_s" ]; then
            echo "gave up: lines $2-$3 may be stored or not" >&2
            exit 1
        fi
        pause "$attempt"
        attempt=$((attempt + 1))
    done
    echo "stored lines $2-$3 at $offset"
}

last=0
while mapfile -t -n "$batch_lines" lines && [ ${#lines[@]} -gt 0 ]; do
    printf '%s\n' "${lines[@]}" >"$work/body"
    first=$((last + 1)) last=$((last + ${#lines[@]}))
    send "$run-$first" "$first" "$last"
done
