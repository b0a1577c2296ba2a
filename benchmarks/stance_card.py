"""The model card of the packaged stance model, which `benchmarks/packaged_stance.py` writes."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import Any

CARD = """# The packaged stance model

It says what a document says about a claim: SUPPORTS, REFUTES or NOT_ENOUGH_INFO. ccheck uses it if no better judge is
configured. It has two parts, and numpy runs both:

- **Counts**: multinomial logistic regression over {features} features, in `model.json`.
- **An adapter** of the packaged embedding model (all-MiniLM-L6-v2), in `adapter.safetensors`: rank-16 updates to its
  top five layers. With these it reads the claim and the document's three nearest sentences together. A document that
  the counts leave open with a probability above {open_above} is not read.

The two answers are added: logarithms of the counts' probabilities times `{together.counts}`, and the
adapter's outputs times `{together.reader}`.

## How it was made

`benchmarks/packaged_stance.py` makes it. [docs/training.md](../../docs/training.md) has the command.

- **Data of the counts**: 919 claim-abstract pairs of SciFact (claims and labels CC BY 4.0, abstracts ODC-By 1.0), 5,140
  claim-sentence pairs of Climate-FEVER (as published by its authors), {fever_pairs:,} claim-evidence pairs of FEVER
  (CC BY-SA 3.0), and {fever_open:,} open pairs made from FEVER: a claim with the evidence of another claim that shares
  words with it.
- **Data of the adapter**: first about half of {first:,} pairs, drawn at random. 12,932 are FEVER's, 1,400 have a
  reversed claim, 2,576 are open ones made as above, and the others are made from abstracts of SciFact that no claim is
  judged on: a title or a conclusion, as it is or with a word reversed, and the nearest other sentences of this or of a
  similar abstract. {findings:,} of these others are about what a sentence says that one thing does to another: the
  sentence itself, or one that denies the effect or says the opposite, with a claim in other words. Then pairs of
  SciFact and Climate-FEVER, twice, some of them with a reversed claim. The adapter that ships has read all pairs of
  these two. The measured ones were trained in the same way on two thirds.
- The files contain weights only, neither texts nor labels.
- **Features**: the {counts} counts of `ccheck/verdict/features.py`, and each of them once more for documents of one
  sentence. In an abstract, they read the four sentences that share most words with the claim.
- **Choices**: regularisation C = `{strength}`, class weights to the power of `{balanced}`, weight of FEVER `{fever}`,
  temperature `{temperature}`, threshold `{threshold}`. They were chosen in two folds of the training pairs.

## Figures

*Held out*: claims and documents that neither training nor the choices above have seen, in three folds. *Without it*:
the whole data set was left out, as when you use the model in another field (abstracts of SciFact that no claim is
judged on were still read). Intervals (95%) are from a bootstrap over claims. *Counts alone*: the weighted F1 of the
first part on the same pairs, and the interval of what the adapter adds to it.

The figures flatter a little, because these things were chosen on earlier splits of the same pairs, or on these folds:
the features, the number of sentences, separate weights for documents of one sentence, the weight of FEVER, the
probability above which the adapter does not read, and the two weights that combine the answers.

<!-- measured: benchmarks/packaged_stance.py {run} -->
| data | weighted F1 | counts alone, gain | most frequent label | macro F1 | expected calibration error |
| --- | --- | --- | --- | --- | --- |
{rows}

How reliable the confidences are, on held-out pairs:

<!-- measured: benchmarks/packaged_stance.py {run} -->
| confidence | {names} |
| --- | {lines} |
{reliability}

## What it can't do

- It is small. It compares words and knows little about their meaning: for example, that lower mortality is better
  survival.
- REFUTES is its weakest label. It notices one only by a negation, an opposite direction or a different number.
- It can't add up numbers, or what several sentences say together.
- On subjects and kinds of text that are unlike its data, expect the figures of *without it*, and confidences that are
  too high.
- It reads English only.
"""


def card(figures: dict[str, dict[str, dict[str, Any]]], facts: dict[str, Any]) -> str:
    """The card's text from the figures of `packaged_stance.py`, and the facts that it names."""
    rows = [
        f"| {name}, {kind} "
        f"| {one['weighted_f1']:.3f} [{one['interval'][0]:.3f}, {one['interval'][1]:.3f}] "
        f"| {one['counts_alone']:.3f}, {one['difference'][0]:+.3f} to {one['difference'][1]:+.3f} "
        f"| {one['most_frequent_label']:.3f} | {one['macro_f1']:.3f} | {one['calibration_error']:.3f} |"
        for kind, found in figures.items()
        for name, one in found.items()
    ]
    held = figures["held out"]
    bins = {name: {row[0]: row for row in one["reliability"]} for name, one in held.items()}
    reliability = []
    for low in sorted({low for found in bins.values() for low in found}):
        cells = []
        for found in bins.values():
            row = found.get(low)
            cells.append(f"{row[3]:.2f} right of {row[1]:,}, mean confidence {row[2]:.2f}" if row else "–")
        reliability.append(f"| {low:.1f} to {low + 0.1:.1f} | {' | '.join(cells)} |")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    return CARD.format(
        run=f"{commit.strip()} {datetime.now(UTC).date()}",
        rows="\n".join(rows),
        names=" | ".join(held),
        lines=" | ".join("---" for _ in held),
        reliability="\n".join(reliability),
        **facts,
    )
