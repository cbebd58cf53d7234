# nmt serve on a CPU, without torch: docs/serving.md. `make image` builds it.

FROM python:3.13.9-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY requirements-cpu.txt constraints.txt ./
RUN python -m venv --without-pip /opt/nmt \
    && pip --python /opt/nmt/bin/python install --no-cache-dir -c constraints.txt -r requirements-cpu.txt
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir dist . \
    && pip --python /opt/nmt/bin/python install --no-cache-dir --no-deps dist/*.whl
# Debugging symbols and the packages' tests are a fifth of the files.
RUN strip --strip-unneeded /opt/nmt/lib/python3.*/site-packages/uvloop/*.so \
    && find /opt/nmt -type d -name tests -prune -exec rm -r {} +

FROM python:3.13.9-slim-bookworm
COPY --from=build /opt/nmt /opt/nmt
# The packages are compiled to bytecode already, and nothing is written: the root file system may be read-only.
ENV PATH=/opt/nmt/bin:$PATH \
    HOME=/tmp \
    NMT_MODEL=/model \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["nmt", "serve", "--host", "0.0.0.0"]
