"""Small articles in every format, for tests of the readers and of what ranks their figures."""

from __future__ import annotations

import json

JATS = """<?xml version="1.0"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS//EN" "JATS-archivearticle1.dtd">
<article xmlns:xlink="http://www.w3.org/1999/xlink"><front>
<journal-meta><journal-title-group><journal-title>Made Up Letters</journal-title></journal-title-group></journal-meta>
<article-meta><article-id pub-id-type="doi">10.1/made.up</article-id>
<title-group><article-title>Moss and <italic>snails</italic></article-title></title-group>
<contrib-group><contrib contrib-type="author"><name><surname>Ito</surname><given-names>A</given-names></name></contrib>
</contrib-group><pub-date><year>2011</year></pub-date>
<abstract><p>Snails eat moss.</p></abstract></article-meta></front>
<body><sec><title>Results</title>
<p>Snails of the coast grew by 4&nbsp;mm a year (<xref ref-type="fig" rid="g1">Fig. 1A</xref>).
Their shells were thicker in cold water. Weights are listed in <xref ref-type="table" rid="t1">Table 1</xref>.
<fig id="g1"><label>Figure 1.</label><caption><title>Growth of shells.</title>
<p>(A) Length by year. (B) Width.</p></caption><graphic xlink:href="g1.tif"/></fig></p>
<p>Moss was eaten at night, and slime dried by day. See Figs. 1B and 2 for both, and S4 Fig for the slime.</p>
<fig id="g2"><label>Fig 2</label><caption><p>Moss left after each night.</p></caption></fig>
<sec><title>Weights</title><p>Heavy snails are rare, as Fig. 9 would show.</p>
<table-wrap id="t1"><label>Table 1</label><caption><p>Weights of snails.</p></caption>
<table><tr><th>coast</th><th>grams</th></tr><tr><td>north</td><td>12</td></tr></table></table-wrap></sec></sec>
<sec><title>Supporting Information</title>
<supplementary-material id="s4" xlink:href="s4.tif"><label>S4 Fig</label><caption><p>Slime on glass.</p></caption>
</supplementary-material></sec></body>
<back><ref-list><ref><mixed-citation>Fig. 1 of somebody else</mixed-citation></ref></ref-list></back></article>"""

PMC = """<pmc-articleset><article xmlns:xlink="http://www.w3.org/1999/xlink">
<front><article-meta><title-group><article-title>Moss</article-title></title-group></article-meta></front>
<body><sec><title>Results</title>
<p>Growth was fast (Figs. <xref ref-type="fig" rid="F1">1</xref>&#8211;<xref ref-type="fig" rid="F3">3</xref>).
Slime is shown in Extended Data <xref ref-type="fig" rid="E1">Fig. 1</xref>.</p>
<p>Weights fell <xref ref-type="table" rid="T1">(Table I)</xref>, see
<xref ref-type="other" rid="M1">Additional file 2</xref>.</p>
<boxed-text><label>Box 1</label><caption><title>Terms</title></caption>
<p>Slime is wet, as <xref ref-type="fig" rid="F2">Figure 2b</xref> shows.</p></boxed-text>
<p>Panel <xref ref-type="fig" rid="F4a">a</xref> has snails.</p></sec>
<sec><title>Figures and tables</title>
<fig id="F2"><label>FIGURE 2 |</label><caption><p>Moss at night.</p></caption></fig>
<fig id="F3"><caption><p>Figure 3. Moss by day.</p></caption></fig></sec></body>
<back><sec sec-type="supplementary-material"><supplementary-material id="M1"><media xlink:href="m.pdf"><caption>
<p><bold>Additional file 2.</bold> All weights.</p></caption></media></supplementary-material></sec></back>
<floats-group><fig id="F1"><label>FIG. 1.</label><caption><p>Growth.</p></caption><graphic xlink:href="a.jpg"/></fig>
<fig id="E1"><label>Extended Data Fig. 1</label><caption><p>Slime on glass.</p></caption></fig>
<fig-group id="F4"><label>Fig. 4</label><caption><title>Snails.</title></caption>
<fig id="F4a"><label>(a)</label><caption><p>Big.</p></caption></fig>
<fig id="F4b"><label>(b)</label><caption><p>Small.</p></caption></fig></fig-group>
<table-wrap id="T1"><label>TABLE I</label><caption><p>Weights.</p></caption><table><tr><td>north</td></tr></table>
</table-wrap></floats-group></article></pmc-articleset>"""
"""As PubMed Central has the files of other publishers."""

TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader>
<fileDesc><titleStmt><title>Moss and snails</title></titleStmt>
</fileDesc><profileDesc><abstract><p>Snails eat moss.</p></abstract></profileDesc></teiHeader>
<text><body><div><head>Results</head>
<p>Snails grew by 4 mm a year (Fig. <ref type="figure" target="#fig_0">1</ref>).</p>
<p>Weights are listed in <ref type="table" target="#tab_0">Table 1</ref>.</p></div>
<figure xml:id="fig_0"><head>Figure 1 .</head><label>1</label><figDesc>Figure 1. Growth of shells.</figDesc></figure>
<figure type="table" xml:id="tab_0"><head>Table 1</head><label>1</label><figDesc>Weights of snails.</figDesc>
<table><row><cell>north</cell><cell>12</cell></row></table></figure></body>
<back><div type="references"><p>not text</p></div></back></text></TEI>"""

S2ORC = json.dumps(
    {
        "paper_id": "x",
        "title": "Moss and snails",
        "abstract": "Snails eat moss.",
        "pdf_parse": {
            "body_text": [
                {
                    "text": "Snails grew by 4 mm a year (Fig. 1).",
                    "section": "Results",
                    "ref_spans": [{"start": 28, "end": 34, "text": "Fig. 1", "ref_id": "FIGREF0"}],
                },
                {"text": "Weights are listed in Table 1.", "section": "Results", "ref_spans": []},
            ],
            "ref_entries": {
                "FIGREF0": {"text": "Figure 1: Growth of shells.", "type_str": "figure"},
                "TABREF0": {"text": "Weights of snails.", "type_str": "table", "num": "1", "html": "<td>north</td>"},
            },
        },
    }
)

_TEXT = "Results\nSnails grew by 4 mm a year (Fig. 1).\nWeights are listed in Table 1.\nFigure 1: Growth of shells."


def _span(piece: str, **attributes: str) -> dict[str, object]:
    start = _TEXT.index(piece)
    return {"start": start, "end": start + len(piece), "attributes": attributes}


S2ORC_ANNOTATIONS = json.dumps(
    {
        "title": "Moss and snails",
        "content": {
            "text": _TEXT,
            "annotations": {
                "sectionheader": json.dumps([_span("Results")]),
                "paragraph": json.dumps(
                    [_span("Snails grew by 4 mm a year (Fig. 1)."), _span("Weights are listed in Table 1.")]
                ),
                "figureref": json.dumps([_span("Fig. 1", ref_id="FIGREF0")]),
                "figure": json.dumps([_span("Figure 1: Growth of shells.", id="FIGREF0")]),
            },
        },
    }
)
