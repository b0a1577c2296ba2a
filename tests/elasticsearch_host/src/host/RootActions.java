package host;

import static org.elasticsearch.rest.RestRequest.Method.GET;
import static org.elasticsearch.rest.RestRequest.Method.HEAD;

import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** {@code GET /}, and {@code GET /_license} where Elasticsearch's own licences are absent: modules of the distribution serve them. */
final class RootActions {
    static List<RestHandler> all(String license, boolean licences) {
        var root = new Fixed("root", "/", () -> Map.of(
                "name", "host", "cluster_name", "host", "tagline", "You Know, for Search",
                "version", Map.of("number", Build.current().version(), "build_flavor", "default",
                    "lucene_version", org.apache.lucene.util.Version.LATEST.toString(),
                    "minimum_wire_compatibility_version", Build.current().minWireCompatVersion(),
                    "minimum_index_compatibility_version", Build.current().minIndexCompatVersion())));
        return licences
            ? List.of(root)
            : List.of(root, new Fixed("license", "/_license", () -> Map.of("license", Map.of("status", "active", "type", license))));
    }

    private static final class Fixed extends BaseRestHandler {
        private final String name, path;
        private final Supplier<Map<String, Object>> answer;

        Fixed(String name, String path, Supplier<Map<String, Object>> answer) {
            this.name = "host_" + name;
            this.path = path;
            this.answer = answer;
        }

        @Override
        public String getName() {
            return name;
        }

        @Override
        public List<Route> routes() {
            return List.of(new Route(GET, path), new Route(HEAD, path));
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
            return channel -> channel.sendResponse(new RestResponse(RestStatus.OK, channel.newBuilder().map(answer.get())));
        }
    }
}
