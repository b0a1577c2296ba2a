package host;

import static org.elasticsearch.rest.RestRequest.Method.GET;
import static org.elasticsearch.rest.RestRequest.Method.POST;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.elasticsearch.action.search.SearchRequest;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.common.Strings;
import org.elasticsearch.common.bytes.BytesArray;
import org.elasticsearch.common.xcontent.XContentHelper;
import org.elasticsearch.plugins.Plugin.PluginServices;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.rest.action.RestRefCountedChunkedToXContentListener;
import org.elasticsearch.script.Script;
import org.elasticsearch.script.ScriptType;
import org.elasticsearch.script.TemplateScript;
import org.elasticsearch.search.builder.SearchSourceBuilder;
import org.elasticsearch.xcontent.XContentParserConfiguration;
import org.elasticsearch.xcontent.XContentType;

/** {@code _render/template} and {@code INDEX/_search/template}: the server's own script service and search do the work. */
final class TemplateActions extends BaseRestHandler {
    private final PluginServices services;

    TemplateActions(PluginServices services) {
        this.services = services;
    }

    @Override
    public String getName() {
        return "host_templates";
    }

    @Override
    public List<Route> routes() {
        return List.of("/_render/template", "/{index}/_search/template").stream()
            .flatMap(path -> List.of(new Route(GET, path), new Route(POST, path)).stream()).toList();
    }

    @Override
    @SuppressWarnings("unchecked")
    protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) throws IOException {
        Map<String, Object> asked = request.contentParser().map();
        var params = (Map<String, Object>) asked.getOrDefault("params", Map.of());
        String rendered = asked.containsKey("id")
            ? rendered(services, new Script(ScriptType.STORED, null, (String) asked.get("id"), params))
            : rendered(services, (String) asked.get("source"), params);
        if (request.hasParam("index") == false) return shown(rendered, found -> Map.of("template_output", found));
        // As Elasticsearch does: the request's explain counts, and not the template's.
        return searched(services, client, rendered, request.param("index"), Boolean.TRUE.equals(asked.get("explain")));
    }

    static String rendered(PluginServices services, String source, Map<String, Object> params) {
        return rendered(services, new Script(ScriptType.INLINE, "mustache", source, params));
    }

    private static String rendered(PluginServices services, Script script) {
        return services.scriptService().compile(script, TemplateScript.CONTEXT).newInstance(script.getParams()).execute();
    }

    static RestChannelConsumer shown(String rendered, UnaryOperator<Map<String, Object>> wrapped) {
        var found = XContentHelper.convertToMap(new BytesArray(rendered), true, XContentType.JSON).v2();
        return channel -> channel.sendResponse(new RestResponse(RestStatus.OK, channel.newBuilder().map(wrapped.apply(found))));
    }

    /** {@code explain}: what counts in place of the template's own; null: that counts. */
    static RestChannelConsumer searched(PluginServices services, NodeClient client, String rendered, String indices, Boolean explain)
        throws IOException {
        var configuration = XContentParserConfiguration.EMPTY.withRegistry(services.xContentRegistry());
        var source = new SearchSourceBuilder();
        try (var parser = XContentType.JSON.xContent().createParser(configuration, rendered)) {
            source.parseXContent(parser, true, feature -> true);
        }
        if (explain != null) source.explain(explain);
        var search = new SearchRequest(Strings.splitStringByCommaToArray(indices)).source(source);
        return channel -> client.search(search, new RestRefCountedChunkedToXContentListener<>(channel));
    }
}
