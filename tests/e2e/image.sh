#!/usr/bin/env bash
# Builds the Dockerfile and tries the image: who it runs as, health, produce and fetch, a clean stop, data kept.
#
# For machines without a Docker engine: buildah, as root, without a daemon. The base is a Debian made on the spot by
# debootstrap, since a registry of images may be out of reach; where one is not, name the real base:
#     BASE=docker.io/library/python:3.11-slim-bookworm tests/e2e/image.sh
# With OUT=DIRECTORY it leaves the image there, as an OCI archive, and its SBOM.
# Needs: apt-get install buildah debootstrap. Takes minutes; `make image-check` runs it, `make test` does not.
set -euo pipefail
cd "$(dirname "$0")/../.."
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot BUILDAH_FORMAT=docker # OCI's format has no HEALTHCHECK

work=$(mktemp -d)
node=""
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }
clean_up() {
    [ -z "$node" ] || kill "$node" 2>/dev/null || true
    buildah rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean_up EXIT
say() { printf '%-72s' "$1"; }
ok() { echo ok; }

stand_in() { # A Debian with Python where python:3.11-slim would be, and this machine's certificates and pip settings
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/base" >/dev/null
    cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
    [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$work/base/etc/"
    tar -C "$work/base" -cf "$work/base.tar" .
    local container
    container=$(buildah from scratch)
    buildah add -q "$container" "$work/base.tar" / >/dev/null
    buildah commit -q "$container" localhost/stand-in >/dev/null
}

if [ -z "${BASE:-}" ]; then
    say "base: a Debian by debootstrap (a stand-in for the one in the Dockerfile)"
    stand_in
    BASE=localhost/stand-in
    ok
fi
say "build"
buildah bud -q --build-arg "BASE=$BASE" -t penstock . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
ok

container=$(buildah from penstock)
configured() { # configured EXPRESSION: evaluated over the image's configuration, `config`
    buildah inspect "$container" | python3 -c "
import json, sys
config = json.load(sys.stdin)['Docker']['config']
value = $1
print('\n'.join(value) if isinstance(value, list) else value)"
}
mapfile -t command < <(configured "config['Cmd']")
mapfile -t health < <(configured "config['Healthcheck']['Test'][1:]")
mkdir "$work/data"
chown 10001:10001 "$work/data"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
inside() { buildah run -v "$work/data:/data" -e "PENSTOCK_PORT=$port" "$container" -- "$@"; }

say "the compiled codec runs"
[ "$(inside python3 -m penstock_codec)" = "codec: compiled" ]
ok

say "runs as uid 10001, not as root"
[ "$(inside id -u)" = 10001 ]
ok

start() { # the CMD of the image, and then the health check of the image until it is content
    inside "${command[@]}" >"$work/node.log" 2>&1 &
    node=$!
    for _ in $(seq 100); do
        ! inside "${health[@]}" >/dev/null 2>&1 || return 0
        kill -0 "$node" 2>/dev/null || break
        sleep 0.3
    done
    cat "$work/node.log"
    exit 1
}
descendants() { # the processes below one, which share this machine's numbers
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do echo "$child"; descendants "$child"; done
}
stop() { # SIGTERM to the node itself: the last one below, which buildah's helpers wait for
    kill -TERM "$(descendants "$node" | tail -1)"
    wait "$node"
    node=""
}
url=http://127.0.0.1:$port/v1/topics/image
say "starts by its CMD and is healthy by its HEALTHCHECK"
start
ok
say "takes a record and gives it back, over HTTP/2"
curl -sf --http2-prior-knowledge -X PUT "$url" -o /dev/null
curl -sf --http2-prior-knowledge "$url/records" --json '{"records":[{"value":"kept"}]}' -o /dev/null
curl -sf --http2-prior-knowledge "$url/partitions/0/records?from=earliest" | grep -q kept
ok
say "ends with 0 on SIGTERM, and is then unhealthy"
stop
! inside "${health[@]}" >/dev/null 2>&1
ok
say "finds its data on the volume when it starts again"
start
curl -sf "$url/partitions/0/records?from=earliest" | grep -q kept
stop
ok
if [ -n "${OUT:-}" ]; then
    say "its SBOM has Debian's packages and Python's"
    mkdir -p "$OUT"
    root=$(buildah mount "$container")
    "${PYTHON:-.venv/bin/python}" -m tests.distributions.image_sbom "$root" >"$OUT/penstock-image-sbom.json"
    buildah umount "$container" >/dev/null
    grep -q pkg:deb/debian/libc6@ "$OUT/penstock-image-sbom.json"
    grep -q pkg:pypi/penstock-server@ "$OUT/penstock-image-sbom.json"
    ok
    say "an OCI archive of it is written"
    rm -f "$OUT/penstock-image.oci.tar"
    buildah push -q penstock "oci-archive:$OUT/penstock-image.oci.tar:penstock"
    ok
fi
