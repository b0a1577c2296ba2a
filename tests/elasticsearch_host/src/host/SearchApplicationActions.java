package host;

import static org.elasticsearch.rest.RestRequest.Method.DELETE;
import static org.elasticsearch.rest.RestRequest.Method.GET;
import static org.elasticsearch.rest.RestRequest.Method.POST;
import static org.elasticsearch.rest.RestRequest.Method.PUT;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.elasticsearch.action.ActionListener;
import org.elasticsearch.action.admin.indices.alias.IndicesAliasesRequest.AliasActions;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.plugins.Plugin.PluginServices;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestChannel;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/**
 * {@code _application/search_application/NAME}, as SearchApplicationIndexService does it: an application has an alias of
 * its own name, which an update takes from all indices that it does not name, and a removal from every index. They are
 * kept in memory, and a query is rendered and sent as {@link TemplateActions} does it.
 */
final class SearchApplicationActions extends BaseRestHandler {
    private static final String PATH = "/_application/search_application/{name}";
    private final PluginServices services;
    private final String license;
    private final Map<String, Map<String, Object>> applications = new ConcurrentHashMap<>();

    SearchApplicationActions(PluginServices services, String license) {
        this.services = services;
        this.license = license;
    }

    @Override
    public String getName() {
        return "host_search_applications";
    }

    @Override
    public List<Route> routes() {
        return List.of(new Route(GET, PATH), new Route(PUT, PATH), new Route(DELETE, PATH), new Route(POST, PATH + "/_search"),
            new Route(POST, PATH + "/_render_query"));
    }

    @Override
    @SuppressWarnings("unchecked")
    protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) throws IOException {
        String name = request.param("name");
        Map<String, Object> asked = request.hasContent() ? request.contentParser().map() : Map.of();
        if (license.equals("basic")) return failed(RestStatus.FORBIDDEN, "security_exception", "Current license is non-compliant for search application and behavioral analytics.");
        if (request.method() == PUT) return put(name, asked, client);
        Map<String, Object> application = applications.get(name);
        if (application == null) return failed(RestStatus.NOT_FOUND, "resource_not_found_exception", name);
        if (request.method() == DELETE) {
            return channel -> indices(client, name, channel, there -> aliases(client, name, Set.of(), there, channel, () -> {
                applications.remove(name);
                answer(channel, RestStatus.OK, Map.of("acknowledged", true));
            }));
        }
        if (request.method() == GET) {
            return channel -> indices(client, name, channel, there -> {
                var shown = new HashMap<>(application);
                shown.put("name", name);
                shown.put("indices", List.copyOf(new TreeSet<>(there)));
                answer(channel, RestStatus.OK, shown);
            });
        }
        var script = (Map<String, Object>) ((Map<String, Object>) application.get("template")).get("script");
        var params = new HashMap<>((Map<String, Object>) script.getOrDefault("params", Map.of()));
        params.putAll((Map<String, Object>) asked.getOrDefault("params", Map.of()));
        String rendered = TemplateActions.rendered(services, (String) script.get("source"), params);
        if (request.path().endsWith("/_render_query")) return TemplateActions.shown(rendered, found -> found);
        return TemplateActions.searched(services, client, rendered, name, null);
    }

    @SuppressWarnings("unchecked")
    private RestChannelConsumer put(String name, Map<String, Object> asked, NodeClient client) {
        var wanted = new HashSet<>((List<String>) asked.get("indices"));
        return channel -> indices(client, name, channel, there -> {
            var gone = new HashSet<>(there);
            gone.removeAll(wanted);
            aliases(client, name, wanted, gone, channel, () -> {
                boolean before = applications.put(name, Map.of("template", asked.get("template"), "updated_at_millis", System.currentTimeMillis())) != null;
                answer(channel, RestStatus.OK, Map.of("result", before ? "updated" : "created"));
            });
        });
    }

    /** The indices that have the alias. */
    private static void indices(NodeClient client, String alias, RestChannel channel, Consumer<Set<String>> then) {
        client.admin().indices().getAliases(Aliases.named(alias), listener(channel, found -> {
            var there = new HashSet<String>();
            found.getAliases().forEach((index, some) -> { if (!some.isEmpty()) there.add(index); });
            then.accept(there);
        }));
    }

    private static void aliases(NodeClient client, String alias, Set<String> more, Set<String> gone, RestChannel channel, Runnable then) {
        var request = Aliases.change();
        for (String index : more) request.addAliasAction(AliasActions.add().index(index).alias(alias));
        for (String index : gone) request.addAliasAction(AliasActions.remove().index(index).alias(alias));
        if (request.getAliasActions().isEmpty()) then.run();
        else client.admin().indices().aliases(request, listener(channel, done -> then.run()));
    }

    private static <T> ActionListener<T> listener(RestChannel channel, Consumer<T> then) {
        return ActionListener.wrap(then::accept, failed -> {
            try {
                channel.sendResponse(new RestResponse(channel, failed));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
    }

    private static RestChannelConsumer failed(RestStatus status, String type, String reason) {
        return channel -> answer(channel, status, Map.of("status", status.getStatus(), "error", Map.of("type", type, "reason", reason, "root_cause", List.of())));
    }

    private static void answer(RestChannel channel, RestStatus status, Map<String, Object> body) {
        try {
            channel.sendResponse(new RestResponse(status, channel.newBuilder().map(body)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
