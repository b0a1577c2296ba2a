"""A Qwen2 with random weights as sentence-transformers saves it, and its vectors with a mask of our own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

LAYERS = 9
HEADS, KEYS, SIZE = 4, 2, 64


def make_qwen2(folder: Path, *, causal: bool | None = False, seed: int = 0) -> Path:
    """An embedding model like INF-Retriever-v1: the last token's state. `causal` is `is_causal` of its configuration.

    Its name and layout are those of the published model, whose own code makes attention bidirectional.
    """
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {letter: number for number, letter in enumerate(["<|endoftext|>", *sorted(ByteLevel.alphabet())])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[], model_max_length=128)
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=SIZE,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        max_position_embeddings=128,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=0,
        bos_token_id=None,
    )
    if causal is not None:
        config.is_causal = causal
    body = folder.with_name(f"{folder.name}-body")
    model = transformers.Qwen2Model(config)
    with torch.no_grad():  # so that a state depends on the other tokens, and not on its own alone
        for layer in model.layers:
            layer.self_attn.o_proj.weight *= 5
    model.save_pretrained(body)
    tokenizer.save_pretrained(body)
    transformer = Transformer(str(body), max_seq_length=128)
    pooling = Pooling(SIZE, pooling_mode="lasttoken")
    SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu").save(str(folder))
    return folder


def reference(folder: Path, texts: Sequence[str], *, causal: bool) -> np.ndarray:
    """Unit vectors of the texts, each alone, by transformers' Qwen2 with an explicit mask, causal or none."""
    import torch
    import transformers
    from tokenizers import Tokenizer

    model = transformers.Qwen2Model.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    vectors = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        barred = torch.full((ids.shape[1], ids.shape[1]), -torch.inf).triu(1) if causal else torch.zeros(1, 1)
        mask = barred.expand(1, 1, ids.shape[1], ids.shape[1])
        with torch.inference_mode():
            last = model(ids, attention_mask={"full_attention": mask}).last_hidden_state[0, -1].numpy()
        vectors.append(last / np.linalg.norm(last))
    return np.stack(vectors)
