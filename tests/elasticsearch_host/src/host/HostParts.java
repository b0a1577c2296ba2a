package host;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.lucene.analysis.Analyzer;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.settings.Setting;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.index.analysis.AnalyzerProvider;
import org.elasticsearch.index.analysis.CharFilterFactory;
import org.elasticsearch.index.analysis.PreConfiguredTokenFilter;
import org.elasticsearch.index.analysis.PreConfiguredTokenizer;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.query.BoolQueryBuilder;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.ScriptPlugin;
import org.elasticsearch.plugins.SearchPlugin;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.script.ScriptContext;
import org.elasticsearch.script.ScriptEngine;
import org.elasticsearch.search.rank.RankDoc;
import org.elasticsearch.transport.netty4.Netty4Plugin;

/** The server's network module and what else a bare server lacks; {@code HostPlugin} adds what differs between 8.19 and 9. */
abstract class HostParts extends Netty4Plugin implements ActionPlugin, AnalysisPlugin, ScriptPlugin, SearchPlugin {
    private static final Setting<String> LICENSE = Setting.simpleString("host.license", "trial", Setting.Property.NodeScope);
    final String license;
    final boolean licences;
    private final Settings settings;
    private PluginServices services;

    HostParts(Settings settings) {
        this.settings = settings;
        this.license = LICENSE.get(settings);
        this.licences = settings.hasValue("xpack.license.self_generated.type");
    }

    @Override
    public Collection<?> createComponents(PluginServices services) {
        this.services = services;
        return super.createComponents(services);
    }

    List<RestHandler> restHandlers() {
        return Stream.concat(
            RootActions.all(license, licences).stream(), Stream.of(new DataStreamActions(services.clusterService(), settings), new TemplateActions(services),
                new SearchApplicationActions(services, license))).toList();
    }

    @Override
    public List<Setting<?>> getSettings() {
        return Stream.concat(super.getSettings().stream(), Stream.of(LICENSE)).toList();
    }

    @Override
    public ScriptEngine getScriptEngine(Settings settings, Collection<ScriptContext<?>> contexts) {
        return new Templates();
    }

    @Override
    public List<RetrieverSpec<?>> getRetrievers() {
        return List.of(
            new RetrieverSpec<>("rrf", (parser, context) -> RrfRetriever.parse(parser, context, license)),
            new RetrieverSpec<>("linear", (parser, context) -> LinearRetriever.parse(parser, context, license)));
    }

    @Override
    public List<NamedWriteableRegistry.Entry> getNamedWriteables() {
        return List.of(
            new NamedWriteableRegistry.Entry(RankDoc.class, RrfDoc.NAME, RrfDoc::new),
            new NamedWriteableRegistry.Entry(RankDoc.class, LinearRetriever.Doc.NAME, LinearRetriever.Doc::new));
    }

    @Override
    public List<QuerySpec<?>> getQueries() {
        return licences ? List.of() : List.of(new QuerySpec<>("sparse_vector", BoolQueryBuilder::new, SparseVectorQuery::parse));
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
    public List<PreConfiguredTokenizer> getPreConfiguredTokenizers() {
        return Analysis.plainTokenizers();
    }

    @Override
    public Map<String, AnalysisProvider<CharFilterFactory>> getCharFilters() {
        return Analysis.charFilters();
    }
}
