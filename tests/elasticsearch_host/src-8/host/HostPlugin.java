package host;

import java.util.Collection;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;

/** The method of a plugin that has other arguments in 9. */
public final class HostPlugin extends HostParts {
    public HostPlugin(Settings settings) {
        super(settings);
    }

    @Override
    public Collection<RestHandler> getRestHandlers(
        Settings settings, NamedWriteableRegistry writeables, RestController controller, ClusterSettings cluster,
        IndexScopedSettings indices, SettingsFilter filter, IndexNameExpressionResolver resolver,
        Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features
    ) {
        return restHandlers();
    }
}
