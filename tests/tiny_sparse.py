"""Sparse encoders with random weights, of the true architectures: a BERT with its masked-language-model head."""

from pathlib import Path

WORDS = (
    "sea level rises rising ocean ice melts heat warm carbon dioxide forest coral reef vaccine statin risk stroke tea "
    "milk coffee the a of in has since 1900 20 cm by and not no"
).split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WINDOW = 24


def make_tokenizer():
    import transformers

    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    return transformers.BertTokenizer(vocab=vocabulary, model_max_length=WINDOW)


def make_mlm(folder: Path, *, seed: int = 0, head: bool = True) -> Path:
    """A folder as transformers saves it. Without `head` it has the body's weights alone."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=WINDOW,
        initializer_range=0.5,
    )
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias.normal_(-1, 1)  # so that many terms have no weight, as after training
    if head:
        model.save_pretrained(folder)
    else:
        model.bert.save_pretrained(folder)
        model.config.architectures = ["BertForMaskedLM"]
        model.config.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_splade(folder: Path, *, seed: int = 0) -> Path:
    from sentence_transformers import SparseEncoder

    mlm = make_mlm(folder.with_name(f"{folder.name}-mlm"), seed=seed)
    SparseEncoder(str(mlm), device="cpu").save_pretrained(str(folder))
    return folder


def make_inference_free(folder: Path) -> Path:
    """The same for documents, and a table of weights for queries."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    mlm = make_mlm(folder.with_name(f"{folder.name}-mlm"))
    transformer = SparseEncoder(str(mlm), device="cpu")[0]
    tokenizer = make_tokenizer()
    weights = torch.linspace(0, 3, len(SPECIAL) + len(WORDS))
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer, weight=weights)],
        document_modules=[transformer, SpladePooling("max")],
    )
    SparseEncoder(modules=[router], similarity_fn_name="dot", device="cpu").save_pretrained(str(folder))
    return folder
