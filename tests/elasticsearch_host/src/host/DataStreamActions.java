package host;

import static org.elasticsearch.rest.RestRequest.Method.DELETE;
import static org.elasticsearch.rest.RestRequest.Method.GET;

import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.ClusterState;
import org.elasticsearch.cluster.ClusterStateUpdateTask;
import org.elasticsearch.cluster.service.ClusterService;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestChannel;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** {@code GET /_data_stream} with names alone, and {@code DELETE /_data_stream/NAME}, on a lone node. The server's own code deletes. */
final class DataStreamActions extends BaseRestHandler {
    private final ClusterService cluster;
    private final Settings settings;

    DataStreamActions(ClusterService cluster, Settings settings) {
        this.cluster = cluster;
        this.settings = settings;
    }

    @Override
    public String getName() {
        return "host_data_streams";
    }

    @Override
    public List<Route> routes() {
        return List.of(new Route(GET, "/_data_stream"), new Route(DELETE, "/_data_stream/{name}"));
    }

    @Override
    protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
        if (request.method() == GET) {
            var names = new TreeSet<>(DataStreams.of(cluster.state()).keySet());
            return channel -> answer(channel, RestStatus.OK, Map.of("data_streams", names.stream().map(name -> Map.of("name", name)).toList()));
        }
        String name = request.param("name");
        return channel -> {
            if (!DataStreams.of(cluster.state()).containsKey(name)) {
                answer(channel, RestStatus.NOT_FOUND, Map.of("status", 404, "error", "no such data stream [" + name + "]"));
                return;
            }
            cluster.submitUnbatchedStateUpdateTask("delete data stream", new ClusterStateUpdateTask() {
                @Override
                public ClusterState execute(ClusterState state) {
                    return DataStreams.without(state, name, settings);
                }

                @Override
                public void clusterStateProcessed(ClusterState before, ClusterState after) {
                    answer(channel, RestStatus.OK, Map.of("acknowledged", true));
                }

                @Override
                public void onFailure(Exception failed) {
                    answer(channel, RestStatus.INTERNAL_SERVER_ERROR, Map.of("status", 500, "error", String.valueOf(failed)));
                }
            });
        };
    }

    private static void answer(RestChannel channel, RestStatus status, Map<String, Object> body) {
        try {
            channel.sendResponse(new RestResponse(status, channel.newBuilder().map(body)));
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }
}
