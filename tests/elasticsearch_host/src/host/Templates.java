package host;

import java.util.Map;
import java.util.Set;
import org.elasticsearch.script.ScriptContext;
import org.elasticsearch.script.ScriptEngine;
import org.elasticsearch.script.TemplateScript;

/** Lets Elasticsearch's own code keep search templates, which the module lang-mustache would render: this renders nothing. */
final class Templates implements ScriptEngine {
    @Override
    public String getType() {
        return "mustache";
    }

    @Override
    public <T> T compile(String name, String source, ScriptContext<T> context, Map<String, String> params) {
        TemplateScript.Factory unrendered = given -> new TemplateScript(given) {
            @Override
            public String execute() {
                return source;
            }
        };
        return context.factoryClazz.cast(unrendered);
    }

    @Override
    public Set<ScriptContext<?>> getSupportedContexts() {
        return Set.of(TemplateScript.CONTEXT, TemplateScript.INGEST_CONTEXT);
    }
}
