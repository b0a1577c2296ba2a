package host;

import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.lucene.analysis.Analyzer;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.network.NetworkService;
import org.elasticsearch.common.settings.Setting;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.util.PageCacheRecycler;
import org.elasticsearch.index.analysis.AnalyzerProvider;
import org.elasticsearch.index.analysis.CharFilterFactory;
import org.elasticsearch.index.analysis.PreConfiguredTokenFilter;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.query.BoolQueryBuilder;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.indices.breaker.CircuitBreakerService;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.NetworkPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.plugins.SearchPlugin;
import org.elasticsearch.threadpool.ThreadPool;
import org.elasticsearch.transport.Transport;

/** What a bare Elasticsearch server lacks to answer over HTTP; {@code HostPlugin} adds what differs between 8.19 and 9. */
abstract class HostParts extends Plugin implements NetworkPlugin, ActionPlugin, AnalysisPlugin, SearchPlugin {
    private static final Setting<String> LICENSE = Setting.simpleString("host.license", "trial", Setting.Property.NodeScope);
    final String license;

    HostParts(Settings settings) {
        this.license = LICENSE.get(settings);
    }

    @Override
    public List<Setting<?>> getSettings() {
        return List.of(LICENSE);
    }

    @Override
    public Map<String, Supplier<Transport>> getTransports(
        Settings settings, ThreadPool threads, PageCacheRecycler recycler, CircuitBreakerService breakers,
        NamedWriteableRegistry writeables, NetworkService network
    ) {
        return Map.of("loopback", () -> new LoopbackTransport(recycler));
    }

    @Override
    public List<RetrieverSpec<?>> getRetrievers() {
        return List.of(new RetrieverSpec<>("rrf", (parser, context) -> RrfRetriever.parse(parser, context, license)));
    }

    @Override
    public List<QuerySpec<?>> getQueries() {
        return List.of(new QuerySpec<>("sparse_vector", BoolQueryBuilder::new, SparseVectorQuery::parse));
    }

    @Override
    public Map<String, AnalysisProvider<AnalyzerProvider<? extends Analyzer>>> getAnalyzers() {
        return Analysis.analyzers();
    }

    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Analysis.tokenFilters();
    }

    @Override
    public List<PreConfiguredTokenFilter> getPreConfiguredTokenFilters() {
        return Analysis.plainTokenFilters();
    }

    @Override
    public Map<String, AnalysisProvider<CharFilterFactory>> getCharFilters() {
        return Analysis.charFilters();
    }
}
