package host;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.search.ScoreDoc;
import org.elasticsearch.Build;
import org.elasticsearch.ElasticsearchSecurityException;
import org.elasticsearch.common.ParsingException;
import org.elasticsearch.index.query.AbstractQueryBuilder;
import org.elasticsearch.index.query.QueryBuilder;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.search.rank.RankDoc;
import org.elasticsearch.search.retriever.CompoundRetrieverBuilder;
import org.elasticsearch.search.retriever.RetrieverBuilder;
import org.elasticsearch.search.retriever.RetrieverParserContext;
import org.elasticsearch.xcontent.XContentBuilder;
import org.elasticsearch.xcontent.XContentParser;

/**
 * Stands in for the licensed {@code rrf} retriever: score(d) = sum over retrievers of weight / (rank_constant + rank(d)).
 * Child retrievers, windows, filters and fetching are Elasticsearch's own. The short form (fields, query) is not here.
 */
final class RrfRetriever extends CompoundRetrieverBuilder<RrfRetriever> {
    private static final boolean WEIGHTED = Build.current().version().startsWith("8.") == false;
    private final List<Float> weights;
    private final int rankConstant;

    private RrfRetriever(List<RetrieverSource> children, List<Float> weights, int window, int rankConstant) {
        super(children, window);
        this.weights = weights;
        this.rankConstant = rankConstant;
    }

    static RrfRetriever parse(XContentParser parser, RetrieverParserContext context, String license) throws IOException {
        if (license.equals("basic")) {
            throw complianceError("Reciprocal Rank Fusion (RRF)");
        }
        List<RetrieverSource> children = new ArrayList<>();
        List<Float> weights = new ArrayList<>();
        List<QueryBuilder> filters = List.of();
        int window = 10, rankConstant = 60;
        for (var token = parser.nextToken(); token != XContentParser.Token.END_OBJECT; token = parser.nextToken()) {
            String field = parser.currentName();
            parser.nextToken();
            switch (field) {
                case "rank_window_size" -> window = parser.intValue();
                case "rank_constant" -> rankConstant = parser.intValue();
                case "retrievers" -> {
                    while (parser.nextToken() != XContentParser.Token.END_ARRAY) parseChild(parser, context, children, weights);
                }
                case "filter" -> filters = queries(parser);
                default -> throw new ParsingException(parser.getTokenLocation(), "[rrf] unknown field [" + field + "]");
            }
        }
        var retriever = new RrfRetriever(children, weights, window, rankConstant);
        retriever.preFilterQueryBuilders = new ArrayList<>(filters);
        return retriever;
    }

    private static List<QueryBuilder> queries(XContentParser parser) throws IOException {
        if (parser.currentToken() == XContentParser.Token.START_OBJECT) return List.of(AbstractQueryBuilder.parseTopLevelQuery(parser));
        List<QueryBuilder> queries = new ArrayList<>();
        while (parser.nextToken() != XContentParser.Token.END_ARRAY) queries.add(AbstractQueryBuilder.parseTopLevelQuery(parser));
        return queries;
    }

    /** Reads {@code {NAME: {...}}} or, which 8.19 doesn't know, {@code {"retriever": {NAME: {...}}, "weight": W}}. */
    private static void parseChild(XContentParser parser, RetrieverParserContext context, List<RetrieverSource> children, List<Float> weights) throws IOException {
        float weight = 1;
        while (parser.nextToken() != XContentParser.Token.END_OBJECT) {
            String name = parser.currentName();
            parser.nextToken();
            if (WEIGHTED && name.equals("weight")) weight = parser.floatValue();
            else if (WEIGHTED && name.equals("retriever")) {
                parser.nextToken();
                children.add(child(parser, context));
                parser.nextToken();
            } else children.add(child(parser, context, name));
        }
        weights.add(weight);
    }

    static RetrieverSource child(XContentParser parser, RetrieverParserContext context) throws IOException {
        String name = parser.currentName();
        parser.nextToken();
        return child(parser, context, name);
    }

    private static RetrieverSource child(XContentParser parser, RetrieverParserContext context, String name) throws IOException {
        return RetrieverSource.from(parser.namedObject(RetrieverBuilder.class, name, context));
    }

    static ElasticsearchSecurityException complianceError(String feature) {
        var error = new ElasticsearchSecurityException("current license is non-compliant for [{}]", RestStatus.FORBIDDEN, feature);
        error.addMetadata("es.license.expired.feature", feature);
        return error;
    }

    @Override
    public String getName() {
        return "rrf";
    }

    @Override
    protected RrfRetriever clone(List<RetrieverSource> children, List<QueryBuilder> preFilters) {
        var copy = new RrfRetriever(children, weights, rankWindowSize, rankConstant);
        copy.preFilterQueryBuilders = preFilters;
        copy.retrieverName = retrieverName;
        return copy;
    }

    @Override
    protected RankDoc[] combineInnerRetrieverResults(List<ScoreDoc[]> rankings, boolean explain) {
        Map<RankDoc.RankKey, RankDoc> fused = new HashMap<>();
        for (int i = 0; i < rankings.size(); i++) {
            int rank = 1;
            for (ScoreDoc hit : rankings.get(i)) {
                var doc = fused.computeIfAbsent(
                    new RankDoc.RankKey(hit.doc, hit.shardIndex), key -> new RrfDoc(hit.doc, hit.shardIndex, rankings.size(), rankConstant));
                doc.score += weights.get(i) / (rankConstant + rank);
                ((RrfDoc) doc).ranks[i] = rank++;
            }
        }
        RankDoc[] top = fused.values().stream().sorted().limit(rankWindowSize).toArray(RankDoc[]::new);
        for (int i = 0; i < top.length; i++) top[i].rank = i + 1;
        return top;
    }

    @Override
    protected void doToXContent(XContentBuilder builder, Params params) throws IOException {
        builder.startArray("retrievers");
        for (var source : innerRetrievers) source.retriever().toXContent(builder, params);
        builder.endArray();
        builder.field("rank_window_size", rankWindowSize).field("rank_constant", rankConstant);
    }
}
