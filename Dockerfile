# A server on the CPU. Build: docker build -t sglspec .
# Run: docker run -p 8080:8080 -v sglspec:/data -e SGLSPEC_API_KEYS=sgs_… sglspec
FROM python:3.12-slim AS wheel
WORKDIR /src
RUN pip install --no-cache-dir build hatchling
COPY . .
RUN python -m build --wheel --no-isolation --outdir /dist

FROM python:3.12-slim
ENV OMP_WAIT_POLICY=passive PYTHONUNBUFFERED=1 SGLSPEC_HOME=/data SGLSPEC_STORE=/data/store.db
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /dist/*.whl /tmp/
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "$(echo /tmp/sglspec-*.whl)[local,server]" \
    && rm /tmp/sglspec-*.whl /tmp/constraints.txt \
    && useradd --create-home --uid 10001 sglspec \
    && install -d -o sglspec -g sglspec /data
USER sglspec
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["sglspec"]
# Beyond the container only with keys: without them it does not start on this address.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--log-format", "json", "--log-level", "info"]
