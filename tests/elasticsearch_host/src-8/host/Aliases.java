package host;

import org.elasticsearch.action.admin.indices.alias.IndicesAliasesRequest;
import org.elasticsearch.action.admin.indices.alias.get.GetAliasesRequest;

final class Aliases {
    static GetAliasesRequest named(String name) {
        return new GetAliasesRequest(name);
    }

    static IndicesAliasesRequest change() {
        return new IndicesAliasesRequest();
    }

    private Aliases() {}
}
