"""The model card of the packaged stance model, from its `figures.json` alone.

python benchmarks/stance_card.py verdict/packaged
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

CARD = """# The packaged stance model

It says what a document says about a claim: SUPPORTS, REFUTES or NOT_ENOUGH_INFO. ccheck uses it if no better judge is
configured. It has two parts, and numpy runs both:

- **Counts**: multinomial logistic regression over {features} features, in `model.json`.
- **An adapter** of the packaged embedding model (all-MiniLM-L6-v2), in `adapter.safetensors`: rank-16 updates to its
  top five layers. With these it reads the claim and the document's three nearest sentences together. A document that
  the counts leave open with a probability above `{open_above}` is not read.

The two answers are added: logarithms of the counts' probabilities times `{together[counts]}`, and the
adapter's outputs times `{together[reader]}`.

## How it was made

`benchmarks/packaged_stance.py` makes it. [docs/training.md](../../docs/training.md) has the command.

- **Data of the counts**: {pairs[SciFact]:,} claim-abstract pairs of SciFact (claims and labels CC BY 4.0, abstracts
  ODC-By 1.0), {pairs[Climate-FEVER]:,} claim-sentence pairs of Climate-FEVER (as published by its authors),
  {fever_pairs:,} claim-evidence pairs of FEVER (CC BY-SA 3.0), and {fever_open:,} open pairs made from FEVER: a claim
  with the evidence of another claim that shares words with it.
- **Data of the adapter**: first about half of {first:,} pairs, drawn at random. {fever_own:,} are FEVER's,
  {fever_reversed:,} have a reversed claim, {fever_made_open:,} are open ones made as above, and the others are made
  from {pool}: a title or a conclusion,
  as it is or with a word reversed, and the nearest other sentences of this or of a similar abstract. {findings:,} of
  these others are about what a sentence says that one thing does to another. Then pairs of SciFact and Climate-FEVER,
  twice, some of them with a reversed claim. The adapter that ships has read all pairs of these two. The measured ones
  were trained in the same way on two thirds.
- The files contain weights only, neither texts nor labels.
- **Features**: the {counts} counts of `verdict/features.py`, and each of them once more for documents of one
  sentence. In an abstract, they read the four sentences that share most words with the claim.
- **Choices**: regularisation C = `{strength}`, class weights to the power of `{balanced}`, weight of FEVER `{fever}`,
  temperature `{temperature}`, threshold `{threshold}`. They were chosen in two folds of the training pairs.

## Figures

*Held out*: other claims and other documents than in training, in three folds. *Without it*: the whole data set was left
out, as when you use the model in another field. *Elsewhere*: kinds of claims that nothing here was made from
(`benchmarks/packaged_elsewhere.py`). Intervals (95%) are from a bootstrap over claims. *Counts alone*: the weighted F1
of the first part on the same pairs, and the interval of what the adapter adds to it.

**Believe the lowest of these figures, not the highest.** What to know about them:

- These things were chosen on the folds that *held out* reports, or on other splits of the same pairs: the features,
  the number of sentences, separate weights for documents of one sentence, the weight of FEVER, the probability above
  which the adapter does not read, how long it reads its first pairs, its seeds, the pairs about findings, and how the
  answers are combined.
{leaks}

On pairs of other claims, which are kept outside this project, so that nothing was chosen on them:

<!-- published: verdict/packaged/figures.json -->
| data | pairs | weighted F1 | calibration error | of refuted claims, said SUPPORTS |
| --- | --- | --- | --- | --- |
{apart}

On the pairs that are here:

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
- It takes shared words for support, and is sure of it. On subjects and kinds of text that are unlike its data, expect
  the figures of *elsewhere*, and confidences that are too high.
- It reads English only. ccheck does not show it claims and documents in other languages.
"""


def card(figures: dict[str, Any]) -> str:
    """The card's text from what is in `figures.json`."""
    facts, apart = dict(figures["made"]), figures.get("apart", {})
    figures = {kind: found for kind, found in figures.items() if kind not in ("made", "apart")}
    facts["leaks"] = "\n".join(textwrap.fill(f"- {one}", 120, subsequent_indent="  ") for one in facts["leaks"])
    facts["apart"] = "\n".join(
        f"| {name} | {one['pairs']:,} | {one['weighted_f1']:.3f} | {one['calibration_error']:.3f} "
        f"| {one['refuted_said_supported']} of {one['refuted']} |"
        for name, one in apart.items()
    )
    rows = [
        f"| {name}, {kind} "
        f"| {one['weighted_f1']:.3f} [{one['interval'][0]:.3f}, {one['interval'][1]:.3f}] "
        f"| {_gain(one)} "
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
    return CARD.format(
        pairs={name: one["pairs"] for name, one in held.items()},
        rows="\n".join(rows),
        names=" | ".join(held),
        lines=" | ".join("---" for _ in held),
        reliability="\n".join(reliability),
        **facts,
    )


def _gain(one: dict[str, Any]) -> str:
    if "counts_alone" not in one:
        return "–"
    return f"{one['counts_alone']:.3f}, {one['difference'][0]:+.3f} to {one['difference'][1]:+.3f}"


def write_card(folder: Path) -> None:
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    (folder / "README.md").write_text(card(figures), encoding="utf-8")


if __name__ == "__main__":
    write_card(Path(sys.argv[1]))
