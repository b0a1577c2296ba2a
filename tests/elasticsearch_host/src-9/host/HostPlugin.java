package host;

import java.util.Collection;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.network.NetworkService;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.util.BigArrays;
import org.elasticsearch.common.util.PageCacheRecycler;
import org.elasticsearch.common.util.concurrent.ThreadContext;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.http.HttpPreRequest;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.indices.breaker.CircuitBreakerService;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.telemetry.TelemetryProvider;
import org.elasticsearch.threadpool.ThreadPool;
import org.elasticsearch.transport.BytesRefRecycler;
import org.elasticsearch.xcontent.NamedXContentRegistry;

/** The two methods of a plugin that have other arguments in 8.19. */
public final class HostPlugin extends HostParts {
    public HostPlugin(Settings settings) {
        super(settings);
    }

    @Override
    public Map<String, Supplier<HttpServerTransport>> getHttpTransports(
        Settings settings, ThreadPool threads, BigArrays arrays, PageCacheRecycler recycler, CircuitBreakerService breakers,
        NamedXContentRegistry xcontent, NetworkService network, HttpServerTransport.Dispatcher dispatcher,
        BiConsumer<HttpPreRequest, ThreadContext> context, ClusterSettings cluster, TelemetryProvider telemetry
    ) {
        return Map.of("jdk", () -> new JdkHttpTransport(new HttpTransport.Parts(
            settings, network, new BytesRefRecycler(recycler), threads, xcontent, dispatcher, cluster, telemetry)));
    }

    @Override
    public Collection<RestHandler> getRestHandlers(
        RestHandlersServices services, Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features
    ) {
        return RootActions.all(license);
    }
}
