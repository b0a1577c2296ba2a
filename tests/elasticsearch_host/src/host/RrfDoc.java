package host;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.lucene.search.Explanation;
import org.elasticsearch.common.io.stream.StreamInput;
import org.elasticsearch.common.io.stream.StreamOutput;
import org.elasticsearch.search.rank.RankDoc;

/** A fused document that remembers its rank in each ranking, 0 where it was not found, and explains itself with them. */
final class RrfDoc extends RankDoc {
    static final String NAME = "host_rrf_doc";
    final int[] ranks;
    private final int rankConstant;

    RrfDoc(int doc, int shardIndex, int rankings, int rankConstant) {
        super(doc, 0, shardIndex);
        this.ranks = new int[rankings];
        this.rankConstant = rankConstant;
    }

    RrfDoc(StreamInput in) throws IOException {
        super(in);
        ranks = in.readIntArray();
        rankConstant = in.readVInt();
    }

    @Override
    protected void doWriteTo(StreamOutput out) throws IOException {
        out.writeIntArray(ranks);
        out.writeVInt(rankConstant);
    }

    @Override
    public String getWriteableName() {
        return NAME;
    }

    /** In the words of Elasticsearch's own {@code RRFRankDoc}, 8.16 and later: clients read the ranks from them. */
    @Override
    public Explanation explain(Explanation[] sources, String[] names) {
        List<Explanation> details = new ArrayList<>();
        for (int i = 0; i < ranks.length; i++) {
            String query = "at index [" + i + "]" + (names[i] == null ? "" : " [" + names[i] + "]");
            if (ranks[i] == 0) {
                details.add(Explanation.noMatch("rrf score: [0], result not found in query " + query));
            } else {
                String sum = "1 / (" + ranks[i] + " + " + rankConstant + ")";
                String rank = "rrf score: [" + 1f / (ranks[i] + rankConstant) + "], for rank [" + ranks[i] + "] in query " + query;
                details.add(Explanation.match(ranks[i], rank + " computed as [" + sum + "], for matching query with score", sources[i]));
            }
        }
        String total = "rrf score: [" + score + "] computed for initial ranks " + Arrays.toString(ranks);
        return Explanation.match(
            score, total + " with rankConstant: [" + rankConstant + "] as sum of [1 / (rank + rankConstant)] for each query", details);
    }

    @Override
    public boolean doEquals(RankDoc other) {
        return Arrays.equals(ranks, ((RrfDoc) other).ranks) && rankConstant == ((RrfDoc) other).rankConstant;
    }

    @Override
    public int doHashCode() {
        return 31 * Arrays.hashCode(ranks) + rankConstant;
    }
}
