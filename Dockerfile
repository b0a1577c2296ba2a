# The reranking sidecar: docs/rerank-server.md
#   docker build -t ccheck-rerank .                          for processors
#   docker build -t ccheck-rerank --build-arg DEVICE=gpu .   for NVIDIA GPUs: PyPI's torch brings CUDA
#   docker run --init -p 127.0.0.1:8080:8080 -v models:/models ccheck-rerank --model BAAI/bge-reranker-v2-m3
FROM python:3.12-slim
ARG DEVICE=cpu

# First what changes seldom. No model is in the image: they lie in the volume, downloaded or put there.
# hadolint ignore=DL3013
RUN if [ "$DEVICE" = cpu ]; then \
        pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.8"; \
    else \
        pip install --no-cache-dir "torch>=2.8"; \
    fi
WORKDIR /src
COPY . .
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[models,server]" && rm -rf /src/* \
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
