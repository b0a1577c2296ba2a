"""The model card of the packaged stance model, from its `figures.json` alone.

python benchmarks/stance_card.py verdict/packaged
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CARD = """# The packaged stance model

It says what a document says about a claim: SUPPORTS, REFUTES or NOT_ENOUGH_INFO. ccheck uses it if no better judge
is configured. Numpy runs it: a BERT of twelve layers, trained from
[bge-small-en-v1.5](https://huggingface.co/BAAI/bge-small-en-v1.5) (BAAI, MIT licence) and stored in int8
(`reader.safetensors`). It reads the claim together with the document's last sentence and the four others that share
most words with the claim; a confidence interval is replaced by what it says, and a p-value followed by that
(`verdict/quantities.py`).
The reader's temperature is `{temperature}`. A side with a probability below `{threshold}` is not named.

What differs from the claim in a number, a direction or a denial is not called support (`verdict/differences.py`).

An answer **decides** a verdict from these confidences on: SUPPORTS `{decisive[SUPPORTS]}`, REFUTES
`{decisive[REFUTES]}`; from `{reworded[SUPPORTS]}` and `{reworded[REFUTES]}` if an abstract says it in other words (no
sentence has more than half of the claim's), since shared words can't have misled it then; from `{alike}` if a sentence
has nearly all of the claim's words, and is not seen to state or deny it; and from `0.5` if a clause says the claim and
nothing else, or denies it so, or if a conclusion of an abstract states it. Sentences that say what was asked or done,
or what others said, do not count.

## How it was made

`benchmarks/packaged_stance.py` makes it. [docs/training.md](../../docs/training.md) has the command.

- **First** from {base:,} pairs made from FEVER (CC BY-SA 3.0) and from open-access abstracts of
  trials that no other data set here has: claims as they are, reversed, denied, or with another number; claims with
  what a paper asked or did, which leaves them open; and pairs that share every word but one, which was exchanged in
  the claim, in the evidence or in both. Where it was exchanged in one of them, only SUPPORTS is ruled out.
- **Then** from up to {judged:,} judged pairs: SciFact (claims CC BY 4.0, abstracts ODC-By 1.0), Climate-FEVER (as
  published by its authors), Evidence Inference (MIT; the claims are written by templates), CliniFact and PubMedQA
  (MIT), with variants of them as above.
- A reader learns the labels of these pairs and the answers of two larger models that learned them before:
  bert-base-uncased and SmolLM2-135M-Instruct (both Apache 2.0). It learns their answers also for {pool:,} pairs that
  nobody judged, of sentences of the abstracts and of 47 open-access articles (PLOS, CC BY 4.0).
- Three readers were made so, each without a group of the data sets, in four and a half minutes of an H100. Everything
  was cut off by the clock: the larger models saw the first pairs 1.5 and .7 times, the readers 1.2 times.
- **Last**, the mean of their weights learned {written:,}
  [claims that were written for it](../../benchmarks/written_claims.jsonl) about {abstracts:,} abstracts of many fields
  (SciFact's that no claim there cites, trials', invented ones): supported, refuted and open ones, in everyday words, in
  the paper's, in an expert's, as a headline has them, and in a form that looks like the opposite. A language model
  wrote them; nobody has checked them all. Some are also read with another abstract, or with what a trial asked and did,
  and are open then. The judged pairs were learned again beside them. There were four courses of more than an hour of
  two cores each, with more claims each time: 102,300 pairs of these were seen, and 75,100 judged ones. The first two
  read three sentences of a document, the others five. Of what a course made, `.85`, `.6`, `.7` and `.7` were kept, the
  rest is the reader before it: these shares were chosen on SciFact, COVID-Fact and the claims as people make them.
- At first it learned from the sentences of abstracts that an embedding model finds nearest to the claim. It reads
  those that share most words with it, which needs no embeddings.
- COVID-Fact has no licence. It was measured, and nothing was trained on it, or chosen by it but for these shares and
  the confidences that decide.
- The files contain weights only, neither texts nor labels.

## Figures

*Left out*: by a reader that was made without the data set and those like it (SciFact and PubMedQA together, trials'
findings and CliniFact together), before the last courses (measured at {run}; these readers are not kept). *In field*:
by the model that ships, on other claims, documents, trials and subjects of data that it was made from. *Measured only*:
by it, on COVID-Fact, and on [claims as people make them](../../benchmarks/written_test.jsonl), {checked} about invented
abstracts and {demo} about the demo's papers, written without knowledge of the others. The temperature was fitted on the
claims in field. From which confidence an answer decides was chosen on all of these but the {later} written after that,
about 50 invented abstracts and 60 of SciFact and of trials that no other claim is about (what is only leant to was
chosen with these in view too); and on {made_up[pairs]:,}
[claims that were written to mislead](../../tests/verdict/near-misses.jsonl): of the {made_up[decided]} of these that it
decides, {made_up[right]} are right. Of Climate-FEVER in field, a quarter of the evidence sentences were learned from
with other claims.

**Believe the lowest of these figures, not the highest.**

<!-- measured: benchmarks/packaged_stance.py {shipped} -->
| data | pairs | weighted F1 | calibration error | risk-coverage | right of decided | refuted said SUPPORTS (decides) |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

<!-- measured: benchmarks/packaged_stance.py {shipped} -->
| data | SUPPORTS: precision, recall | REFUTES: precision, recall |
| --- | --- | --- |
{labels}

Controls, on data sets left out: weighted F1 of the reader with a part of a pair, or with another document.

<!-- measured: benchmarks/packaged_stance.py {run} -->
| data | claim alone | document alone | another document | both |
| --- | --- | --- | --- | --- |
{controls}

## What it can't do

- It is small, and decides little: most claims stay open. It knows little about meaning: for example, that
  lower mortality is better survival, or, in other words than the claim's, that "A is faster than B" is not "B is
  faster than A".
- It can't add up numbers, or what several sentences say together. It takes round ones at their word: it takes
  "20 cm" for refuted where a paper says "a little under 20 cm". A rule takes that back.
- On subjects and kinds of text that are unlike its data, expect the figures of *left out*.
- It reads English only. ccheck does not show it claims and documents in other languages.
"""


def card(figures: dict[str, Any]) -> str:
    """The card's text from what is in `figures.json`."""
    kinds = [
        (kind, name, one) for kind in ("left out", "in field", "measured only") for name, one in figures[kind].items()
    ]
    rows = [
        f"| {name}, {kind} | {one['pairs']:,} | {one['weighted_f1']:.3f} [{one['interval'][0]:.3f}, "
        f"{one['interval'][1]:.3f}] | {one['calibration_error']:.3f} | {one['risk_coverage']:.3f} "
        f"| {_decided(one)} | {one['refuted_said_supported']} of {one['refuted']}{_falsely(one)} |"
        for kind, name, one in kinds
    ]
    labels = [f"| {name}, {kind} | {_both(one, 'SUPPORTS')} | {_both(one, 'REFUTES')} |" for kind, name, one in kinds]
    controls = [
        f"| {name} | " + " | ".join(f"{value:.3f}" for value in one.values()) + " |"
        for name, one in figures["controls"].items()
    ]
    return CARD.format(rows="\n".join(rows), labels="\n".join(labels), controls="\n".join(controls), **figures["made"])


def _decided(one: dict[str, Any]) -> str:
    return f"{one['decided_right']} of {one['decided']}" if "decided" in one else "–"


def _falsely(one: dict[str, Any]) -> str:
    return f" ({one['refuted_decided_supported']})" if "decided" in one else ""


def _both(one: dict[str, Any], label: str) -> str:
    return f"{one['labels'][label]['precision']:.3f}, {one['labels'][label]['recall']:.3f}"


def write_card(folder: Path) -> None:
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    (folder / "README.md").write_text(card(figures), encoding="utf-8")


if __name__ == "__main__":
    write_card(Path(sys.argv[1]))
