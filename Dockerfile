# Graft's service in a container. Build: docker build -t graft . (pip's own settings choose where
# wheels come from: --build-arg PIP_EXTRA_INDEX_URL=… for a CPU build of torch, for example).
FROM python:3.11-slim

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH

COPY requirements.lock /tmp/graft/requirements.lock
RUN pip install --no-cache-dir --disable-pip-version-check -r /tmp/graft/requirements.lock

# Installed as a wheel and the source removed: bare package names such as `index` must come from
# one place only, and the working directory is never the source.
COPY . /tmp/graft
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /tmp/graft \
    && rm -rf /tmp/graft

RUN useradd --create-home --uid 10001 graft && mkdir /data && chown graft /data
USER graft
WORKDIR /data
ENV GRAFT_DATA_DIR=/data/store \
    GRAFT_MODELS_DIR=/data/models \
    OMP_WAIT_POLICY=PASSIVE \
    GOMP_SPINCOUNT=0 \
    TOKENIZERS_PARALLELISM=false \
    PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8642
CMD ["graft", "serve", "--host", "0.0.0.0", "--port", "8642"]
