# A node of Penstock: `docker build -t penstock .`, then `docker run -p 127.0.0.1:8080:8080 -v penstock:/data penstock`.
# Nothing unlocked is installed: every package comes from requirements/serve.lock with its hash. Only the codec is
# compiled, in a stage of its own, and the image has no compiler.
# tests/e2e/image.sh builds this file and tries what comes out.

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS libraries
WORKDIR /build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/serve.lock requirements/serve.lock
RUN python3 -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --quiet --only-binary :all: --require-hashes -r requirements/serve.lock

# The compiled codec, by Debian's compiler. The headers come with the interpreter of the base, or from Debian with Debian's.
FROM libraries AS codec
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends gcc libc6-dev >/dev/null \
    && { [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] \
        || apt-get install -qq -y --no-install-recommends libpython3-dev >/dev/null; }
COPY penstock_codec penstock_codec
RUN /opt/penstock/bin/pip wheel --quiet --no-deps --no-build-isolation -w /wheels ./penstock_codec

# After the libraries, which change seldom.
FROM libraries AS build
COPY --from=codec /wheels /wheels
COPY pyproject.toml pyproject.toml
COPY README.md README.md
COPY SECURITY.md SECURITY.md
COPY docs docs
COPY LICENSE LICENSE
COPY engine engine
COPY replication replication
COPY openapi openapi
COPY gateway gateway
COPY node node
COPY penstock penstock
COPY spark_ingest spark_ingest
RUN /opt/penstock/bin/pip install --quiet --no-deps --no-build-isolation /wheels/*.whl ./penstock . \
    && PENSTOCK_CODEC=compiled /opt/penstock/bin/python -m penstock_codec \
    && /opt/penstock/bin/pip uninstall --quiet --yes setuptools pip

FROM ${BASE}
RUN groupadd --gid 10001 penstock \
    && useradd --uid 10001 --gid penstock --no-create-home --home-dir /data penstock \
    && install --directory --owner=penstock --group=penstock --mode=750 /data
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1
USER penstock
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["penstock", "doctor", "--ready"]
# Every address, since a container's loopback is its own; insecure, since an image has no tokens: publish the port to
# 127.0.0.1 or to a network that you trust. Variables and not flags, so that your own PENSTOCK_HOST, PENSTOCK_INSECURE
# and PENSTOCK_DATA_DIR count; several data directories are PENSTOCK_DATA_DIR= with PENSTOCK_DATA_DIRS=/a,/b. Clients
# that call the node by a name, as containers of one network do, need PENSTOCK_ALLOWED_HOSTS=<name>. All settings:
# docs/reference/settings.md.
ENV PENSTOCK_HOST=0.0.0.0 PENSTOCK_INSECURE=true PENSTOCK_DATA_DIR=/data
CMD ["penstock", "serve"]
