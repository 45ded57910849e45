#!/bin/bash
# The story of the clients for kcat, which makes no topics and gives no times: the topic is there.
set -e
servers=$1 topic=$2 records=$4 seconds=$5
directory=$(mktemp -d)
members=()
join() {
    kcat -b "$servers" -G "$topic" -X auto.offset.reset=earliest -X session.timeout.ms=6000 -X heartbeat.interval.ms=1000 \
        -X auto.commit.interval.ms=500 -u -q "$topic" >"$directory/$1" 2>"$directory/$1.err" &
    members+=($!)
}
count() { cat "$directory"/[012] 2>/dev/null | sort -u | wc -l; }
join 0
join 1
sleep 1
part=0
for codec in gzip snappy lz4 zstd; do
    for piece in 0 1 2 3 4; do
        first=$((part * records / 4 + piece * records / 20))
        for number in $(seq $first $((first + records / 20 - 1))); do echo "k$((number % 97)):$number"; done |
            kcat -b "$servers" -P -t "$topic" -K: -z $codec -X enable.idempotence=true 2>>"$directory/produce.err"
        sleep "$(echo "$seconds / 20" | bc -l)"
    done
    part=$((part + 1))
    if [ $part = 2 ]; then join 2; fi
done
for _ in $(seq 900); do
    if [ "$(count)" -ge "$records" ]; then break; fi
    sleep 0.1
done
sleep 1
kill "${members[@]}"
wait "${members[@]}" || true
seen=$(count)
read -r a b c < <(wc -l <"$directory/0" | tr '\n' ' '; wc -l <"$directory/1" | tr '\n' ' '; wc -l <"$directory/2")
echo "{\"seen\": $seen, \"members\": [$a, $b, $c], \"committed\": null, \"after_half\": null}"
rm -r "$directory"
