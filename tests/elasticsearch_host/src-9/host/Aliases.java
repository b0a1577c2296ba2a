package host;

import org.elasticsearch.action.admin.indices.alias.IndicesAliasesRequest;
import org.elasticsearch.action.admin.indices.alias.get.GetAliasesRequest;
import org.elasticsearch.core.TimeValue;

final class Aliases {
    private static final TimeValue LONG = TimeValue.timeValueSeconds(30);
    static GetAliasesRequest named(String name) {
        return new GetAliasesRequest(LONG, name);
    }

    static IndicesAliasesRequest change() {
        return new IndicesAliasesRequest(LONG, LONG);
    }

    private Aliases() {}
}
