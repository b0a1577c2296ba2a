package host;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.search.Explanation;
import org.apache.lucene.search.ScoreDoc;
import org.elasticsearch.common.ParsingException;
import org.elasticsearch.common.io.stream.StreamInput;
import org.elasticsearch.common.io.stream.StreamOutput;
import org.elasticsearch.index.query.QueryBuilder;
import org.elasticsearch.search.rank.RankDoc;
import org.elasticsearch.search.retriever.CompoundRetrieverBuilder;
import org.elasticsearch.search.retriever.RetrieverParserContext;
import org.elasticsearch.xcontent.XContentBuilder;
import org.elasticsearch.xcontent.XContentParser;

/**
 * Stands in for the licensed {@code linear} retriever with the normalizer {@code minmax}: score(d) = sum over retrievers of
 * weight * (score - min) / (max - min). As in Elasticsearch, equal scores of a retriever stay as they are.
 */
final class LinearRetriever extends CompoundRetrieverBuilder<LinearRetriever> {
    private static final float EQUAL = 1e-6f;
    private final List<Float> weights;

    private LinearRetriever(List<RetrieverSource> children, List<Float> weights, int window) {
        super(children, window);
        this.weights = weights;
    }

    static LinearRetriever parse(XContentParser parser, RetrieverParserContext context, String license) throws IOException {
        if (license.equals("basic")) {
            throw RrfRetriever.complianceError("linear retriever");
        }
        List<RetrieverSource> children = new ArrayList<>();
        List<Float> weights = new ArrayList<>();
        int window = 10;
        for (var token = parser.nextToken(); token != XContentParser.Token.END_OBJECT; token = parser.nextToken()) {
            String field = parser.currentName();
            parser.nextToken();
            switch (field) {
                case "rank_window_size" -> window = parser.intValue();
                case "retrievers" -> {
                    while (parser.nextToken() != XContentParser.Token.END_ARRAY) parseChild(parser, context, children, weights);
                }
                default -> throw new ParsingException(parser.getTokenLocation(), "[linear] unknown field [" + field + "]");
            }
        }
        return new LinearRetriever(children, weights, window);
    }

    private static void parseChild(XContentParser parser, RetrieverParserContext context, List<RetrieverSource> children, List<Float> weights) throws IOException {
        float weight = 1;
        while (parser.nextToken() != XContentParser.Token.END_OBJECT) {
            String name = parser.currentName();
            parser.nextToken();
            if (name.equals("weight")) weight = parser.floatValue();
            else if (name.equals("retriever")) {
                parser.nextToken();
                children.add(RrfRetriever.child(parser, context));
                parser.nextToken();
            } else if (name.equals("normalizer") == false || parser.text().equals("minmax") == false) {
                throw new ParsingException(parser.getTokenLocation(), "[linear] unknown field or normalizer [" + name + "]");
            }
        }
        weights.add(weight);
    }

    @Override
    public String getName() {
        return "linear";
    }

    @Override
    protected LinearRetriever clone(List<RetrieverSource> children, List<QueryBuilder> preFilters) {
        var copy = new LinearRetriever(children, weights, rankWindowSize);
        copy.preFilterQueryBuilders = preFilters;
        copy.retrieverName = retrieverName;
        return copy;
    }

    @Override
    protected RankDoc[] combineInnerRetrieverResults(List<ScoreDoc[]> rankings, boolean explain) {
        Map<RankDoc.RankKey, Doc> fused = new HashMap<>();
        for (int i = 0; i < rankings.size(); i++) {
            float min = Float.MAX_VALUE, max = Float.MIN_VALUE;
            for (ScoreDoc hit : rankings.get(i)) {
                min = Math.min(min, hit.score);
                max = Math.max(max, hit.score);
            }
            for (ScoreDoc hit : rankings.get(i)) {
                var doc = fused.computeIfAbsent(
                    new RankDoc.RankKey(hit.doc, hit.shardIndex), key -> new Doc(hit.doc, hit.shardIndex, new float[rankings.size()]));
                doc.normalized[i] = Math.abs(min - max) < EQUAL ? min : (hit.score - min) / (max - min);
                doc.score += weights.get(i) * doc.normalized[i];
            }
        }
        RankDoc[] top = fused.values().stream().sorted().limit(rankWindowSize).toArray(RankDoc[]::new);
        for (int i = 0; i < top.length; i++) top[i].rank = i + 1;
        return top;
    }

    @Override
    protected void doToXContent(XContentBuilder builder, Params params) throws IOException {
        builder.field("rank_window_size", rankWindowSize);
    }

    /** A fused document that explains itself with its normalized scores, in the words of Elasticsearch's {@code LinearRankDoc}. */
    static final class Doc extends RankDoc {
        static final String NAME = "host_linear_doc";
        final float[] normalized;

        Doc(int doc, int shardIndex, float[] normalized) {
            super(doc, 0, shardIndex);
            this.normalized = normalized;
        }

        Doc(StreamInput in) throws IOException {
            super(in);
            normalized = in.readFloatArray();
        }

        @Override
        protected void doWriteTo(StreamOutput out) throws IOException {
            out.writeFloatArray(normalized);
        }

        @Override
        public String getWriteableName() {
            return NAME;
        }

        @Override
        public Explanation explain(Explanation[] sources, String[] names) {
            return Explanation.match(score, "weighted linear combination score: [" + score + "] computed for normalized scores "
                + Arrays.toString(normalized) + " as sum of (weight[i] * score[i]) for each query.", sources);
        }

        @Override
        public boolean doEquals(RankDoc other) {
            return Arrays.equals(normalized, ((Doc) other).normalized);
        }

        @Override
        public int doHashCode() {
            return Arrays.hashCode(normalized);
        }
    }
}
