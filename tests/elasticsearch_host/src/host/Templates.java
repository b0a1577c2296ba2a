package host;

import com.github.mustachejava.DefaultMustacheFactory;
import com.github.mustachejava.DefaultMustacheVisitor;
import com.github.mustachejava.Mustache;
import com.github.mustachejava.MustacheVisitor;
import com.github.mustachejava.TemplateContext;
import com.github.mustachejava.codes.IterableCode;
import java.io.IOException;
import java.io.StringReader;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.Strings;
import org.elasticsearch.script.ScriptContext;
import org.elasticsearch.script.ScriptEngine;
import org.elasticsearch.script.TemplateScript;
import org.elasticsearch.xcontent.XContentBuilder;
import org.elasticsearch.xcontent.XContentType;
import org.elasticsearch.xcontent.json.JsonStringEncoder;

/**
 * Stands in for the module lang-mustache, with the library that it uses: values are escaped for JSON, and
 * {@code {{#toJson}}name{{/toJson}}} writes a list or an object. Its other functions (join, url) are not here.
 */
final class Templates implements ScriptEngine {
    @Override
    public String getType() {
        return "mustache";
    }

    @Override
    public <T> T compile(String name, String source, ScriptContext<T> context, Map<String, String> params) {
        Mustache template = new Factory().compile(new StringReader(source), "template");
        TemplateScript.Factory rendering = given -> new TemplateScript(given) {
            @Override
            public String execute() {
                return template.execute(new StringWriter(), getParams()).toString();
            }
        };
        return context.factoryClazz.cast(rendering);
    }

    @Override
    public Set<ScriptContext<?>> getSupportedContexts() {
        return Set.of(TemplateScript.CONTEXT, TemplateScript.INGEST_CONTEXT);
    }

    private static final class Factory extends DefaultMustacheFactory {
        @Override
        public void encode(String value, Writer writer) {
            try {
                writer.write(JsonStringEncoder.getInstance().quoteAsString(value));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        @Override
        public MustacheVisitor createMustacheVisitor() {
            return new DefaultMustacheVisitor(this) {
                @Override
                public void iterable(TemplateContext context, String variable, Mustache mustache) {
                    if (variable.equalsIgnoreCase("toJson")) list.add(new ToJson(context, df, mustache));
                    else super.iterable(context, variable, mustache);
                }
            };
        }
    }

    private static final class ToJson extends IterableCode {
        ToJson(TemplateContext context, DefaultMustacheFactory factory, Mustache mustache) {
            super(context, factory, mustache, mustache.getCodes()[0].execute(new StringWriter(), List.of()).toString());
        }

        @Override
        public Writer execute(Writer writer, List<Object> scopes) {
            Object value = get(scopes);
            try (var builder = XContentBuilder.builder(XContentType.JSON.xContent())) {
                if (value != null) writer.write(Strings.toString(builder.value(value)));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            return appendText(writer);
        }
    }
}
