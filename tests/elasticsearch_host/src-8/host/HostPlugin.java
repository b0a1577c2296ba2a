package host;

import java.util.Collection;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.network.NetworkService;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.common.util.BigArrays;
import org.elasticsearch.common.util.PageCacheRecycler;
import org.elasticsearch.common.util.concurrent.ThreadContext;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.http.HttpPreRequest;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.indices.breaker.CircuitBreakerService;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.telemetry.tracing.Tracer;
import org.elasticsearch.threadpool.ThreadPool;
import org.elasticsearch.transport.BytesRefRecycler;
import org.elasticsearch.xcontent.NamedXContentRegistry;

/** The two methods of a plugin that have other arguments in 9. */
public final class HostPlugin extends HostParts {
    public HostPlugin(Settings settings) {
        super(settings);
    }

    @Override
    public Map<String, Supplier<HttpServerTransport>> getHttpTransports(
        Settings settings, ThreadPool threads, BigArrays arrays, PageCacheRecycler recycler, CircuitBreakerService breakers,
        NamedXContentRegistry xcontent, NetworkService network, HttpServerTransport.Dispatcher dispatcher,
        BiConsumer<HttpPreRequest, ThreadContext> context, ClusterSettings cluster, Tracer tracer
    ) {
        return Map.of("jdk", () -> new JdkHttpTransport(new HttpTransport.Parts(
            settings, network, new BytesRefRecycler(recycler), threads, xcontent, dispatcher, cluster, tracer)));
    }

    @Override
    public Collection<RestHandler> getRestHandlers(
        Settings settings, NamedWriteableRegistry writeables, RestController controller, ClusterSettings cluster,
        IndexScopedSettings indices, SettingsFilter filter, IndexNameExpressionResolver resolver,
        Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features
    ) {
        return RootActions.all(license);
    }
}
