"""The same text has the same terms in Elasticsearch and here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ccheck.core.analysis import clean, terms
from ccheck.core.layout import Layout
from ccheck.search.elastic import Connection, ElasticStore

CHARS = 30_000  # an answer of _analyze holds at most 10,000 tokens

ODD = [
    "Don't; the dog's O’Reilly's l'été — naïve café, Ångström, straße, Æther, œuvre, ﬁne ﬂow",
    "3.2 1,000 1;000 3'4 a.b e.g. U.S.A. a:b 12:30 1.a a.1 a1.2b x_y _a_ __ a_1 1_2",
    "IL-6 TNF-α β-catenin µg 10⁻³ H₂O CO₂ ½ ² 5‰ №7 Ⅷ ㎏ ™ © °C",
    "海面上昇 ひらがな カタカナ ー 한국어 ไทยภาษา ភាសា 中文abc1 a中b ｶﾀｶﾅ 々〇",
    'море Ёж ЙОД Ελληνικά ΣΊΣΥΦΟΣ İstanbul ıI עברית ת"א العربية مُحَمَّد हिन्दी देवनागरी বাংলা தமிழ் ქართული ԱՐՄ',
    "😀 👩‍👩‍👧 🇫🇷 1️⃣ ❤️ ☃ a😀b",
    "zero\u200bwidth joi\u200dner soft\u00adhyphen no\u00a0break com\u0301bining A\u030a n\u0303 line\u2028sep",
    "bom\ufeff at \ufeffend",
    "running runs ran runner generously skies dying news innings sky's relational conditional triplicate",
    "the of and THE Of a an no not such their will with",
    "foo@bar.com http://x.org/a_b?c=d#e a/b c\\d {e} [f] <b>g</b> &amp; $5.00 50% +1 -1 ~x ^y *z",
    "a·b a‧b a．b a․b 1٫2 1٬000 ١٢٣ १२३ 1’000 1.2.3 ..1 1.. 'q' ’q’ a'' a.'b 1,a",
    "\t\n\r\x0b\x0c\x00\x1f\x7f \ud800 \udc00 \ufffd \ufffe",
    "x" * 255 + " ordinary",
]


@pytest.fixture(scope="module")
def analyze(elasticsearch_url: str) -> Iterator[httpx.Client]:
    """A client of the server, at an index with ccheck's analyzer."""
    with ElasticStore(Connection(elasticsearch_url), "ccheck-test-analysis") as store:
        store.prepare(Layout())
        with httpx.Client(base_url=f"{elasticsearch_url}/ccheck-test-analysis", timeout=60) as client:
            yield client
        store.drop()


def indexed(client: httpx.Client, text: str) -> list[str]:
    request = {"analyzer": "ccheck_english", "text": text}
    answer = client.post("/_analyze", params={"filter_path": "tokens.token"}, json=request).raise_for_status().json()
    return [token["token"] for token in answer.get("tokens", ())]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_text(analyze: httpx.Client, text: str) -> None:
    assert terms(text) == indexed(analyze, clean(text))


def test_scifact(analyze: httpx.Client, scifact: Path) -> None:
    with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    count = 0
    texts: list[str] = []
    for number, document in enumerate(documents, 1):
        texts.append(f"{document['title']}\n{document['text']}")
        if number == len(documents) or sum(map(len, texts)) > CHARS:
            text = "\n".join(texts)
            assert terms(text) == indexed(analyze, text)
            count += len(texts)
            texts = []
    assert count == len(documents) > 5_000
