"""Embedding models of the published systems, small and with random weights, of the true architectures."""

from pathlib import Path

from tiny_rerankers import make_decoder, make_encoder


def make_bge_m3(folder: Path) -> Path:
    """As BAAI/bge-m3: XLM-RoBERTa, the first token's state, unit length."""
    return _embedding(make_encoder(folder.with_name(f"{folder.name}-body"), architecture="xlm-roberta"), "cls", folder)


def make_e5_mistral(folder: Path) -> Path:
    """As intfloat/e5-mistral-7b-instruct: Mistral, the last token's state, unit length."""
    body = make_decoder(folder.with_name(f"{folder.name}-body"), architecture="mistral", name=None)
    return _embedding(body, "lasttoken", folder)


def make_jina_v3(folder: Path) -> Path:
    """As jinaai/jina-embeddings-v3-hf: transformers' own architecture, without sentence-transformers' files."""
    import transformers

    encoder = make_encoder(folder.with_name(f"{folder.name}-tokenizer"), architecture="xlm-roberta")
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    config = transformers.JinaEmbeddingsV3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=2048,
    )
    transformers.JinaEmbeddingsV3Model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _embedding(body: Path, pooling: str, folder: Path) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    encoder = Transformer(str(body))
    modules = [encoder, Pooling(encoder.get_embedding_dimension(), pooling), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder
