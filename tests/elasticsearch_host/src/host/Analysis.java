package host;

import static org.elasticsearch.plugins.AnalysisPlugin.requiresAnalysisSettings;

import java.io.Reader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.charfilter.HTMLStripCharFilter;
import org.apache.lucene.analysis.email.UAX29URLEmailTokenizer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.en.EnglishPossessiveFilter;
import org.apache.lucene.analysis.en.KStemFilter;
import org.apache.lucene.analysis.en.PorterStemFilter;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.apache.lucene.analysis.miscellaneous.LengthFilter;
import org.apache.lucene.analysis.miscellaneous.RemoveDuplicatesTokenFilter;
import org.apache.lucene.analysis.pattern.PatternCaptureGroupTokenFilter;
import org.apache.lucene.analysis.pattern.PatternReplaceCharFilter;
import org.apache.lucene.analysis.pattern.PatternReplaceFilter;
import org.apache.lucene.analysis.snowball.SnowballFilter;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.index.analysis.AbstractCharFilterFactory;
import org.elasticsearch.index.analysis.AnalyzerProvider;
import org.elasticsearch.index.analysis.AnalyzerScope;
import org.elasticsearch.index.analysis.CharFilterFactory;
import org.elasticsearch.index.analysis.PreBuiltAnalyzerProvider;
import org.elasticsearch.index.analysis.PreConfiguredTokenFilter;
import org.elasticsearch.index.analysis.PreConfiguredTokenizer;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;

/** Names from Elasticsearch's analysis-common module, bound to the same Lucene classes. */
final class Analysis {
    static Map<String, AnalysisProvider<AnalyzerProvider<? extends Analyzer>>> analyzers() {
        return Map.of("english", (index, environment, name, settings) ->
            new PreBuiltAnalyzerProvider(name, AnalyzerScope.INDEX, new EnglishAnalyzer()));
    }

    /** Filters that need no settings, usable by name alone. */
    static List<PreConfiguredTokenFilter> plainTokenFilters() {
        return List.of(
            PreConfiguredTokenFilter.singleton("asciifolding", true, ASCIIFoldingFilter::new),
            PreConfiguredTokenFilter.singleton("porter_stem", false, PorterStemFilter::new),
            PreConfiguredTokenFilter.singleton("kstem", false, KStemFilter::new),
            PreConfiguredTokenFilter.singleton("unique", false, RemoveDuplicatesTokenFilter::new),
            PreConfiguredTokenFilter.singleton("stemmer", false, PorterStemFilter::new),
            PreConfiguredTokenFilter.singleton("snowball", false, tokens -> new SnowballFilter(tokens, "English")));
    }

    /** Security's own index needs it. */
    static List<PreConfiguredTokenizer> plainTokenizers() {
        return List.of(PreConfiguredTokenizer.singleton("uax_url_email", UAX29URLEmailTokenizer::new));
    }

    static Map<String, AnalysisProvider<TokenFilterFactory>> tokenFilters() {
        Map<String, BiFunction<TokenStream, Settings, TokenStream>> filters = new HashMap<>();
        filters.put("lowercase", (tokens, settings) -> new LowerCaseFilter(tokens));
        filters.put("asciifolding", (tokens, settings) -> new ASCIIFoldingFilter(tokens, settings.getAsBoolean("preserve_original", false)));
        filters.put("porter_stem", (tokens, settings) -> new PorterStemFilter(tokens));
        filters.put("kstem", (tokens, settings) -> new KStemFilter(tokens));
        filters.put("snowball", (tokens, settings) -> new SnowballFilter(tokens, settings.get("language", "English")));
        filters.put("unique", (tokens, settings) -> new RemoveDuplicatesTokenFilter(tokens));
        filters.put("length", (tokens, settings) -> new LengthFilter(tokens, settings.getAsInt("min", 0), settings.getAsInt("max", Integer.MAX_VALUE)));
        filters.put("pattern_capture", (tokens, settings) -> new PatternCaptureGroupTokenFilter(
            tokens, settings.getAsBoolean("preserve_original", true),
            settings.getAsList("patterns").stream().map(Pattern::compile).toArray(Pattern[]::new)));
        filters.put("pattern_replace", (tokens, settings) -> new PatternReplaceFilter(
            tokens, Pattern.compile(settings.get("pattern")), settings.get("replacement", ""), settings.getAsBoolean("all", true)));
        filters.put("stemmer", (tokens, settings) -> switch (settings.get("language", settings.get("name", "english"))) {
            case "english", "porter" -> new PorterStemFilter(tokens);
            case "possessive_english" -> new EnglishPossessiveFilter(tokens);
            case "light_english" -> new KStemFilter(tokens);
            case "porter2" -> new SnowballFilter(tokens, "English");
            case String other -> throw new IllegalArgumentException("this host has no stemmer for [" + other + "]");
        });
        Map<String, AnalysisProvider<TokenFilterFactory>> providers = new HashMap<>();
        filters.forEach((type, filter) -> providers.put(type, requiresAnalysisSettings(
            (index, environment, name, settings) -> tokenFilter(name, tokens -> filter.apply(tokens, settings)))));
        return providers;
    }

    static Map<String, AnalysisProvider<CharFilterFactory>> charFilters() {
        return Map.of(
            "html_strip", (index, environment, name, settings) -> charFilter(name, HTMLStripCharFilter::new),
            "pattern_replace", requiresAnalysisSettings((index, environment, name, settings) -> {
                Pattern pattern = Pattern.compile(settings.get("pattern"));
                String replacement = settings.get("replacement", "");
                return charFilter(name, text -> new PatternReplaceCharFilter(pattern, replacement, text));
            }));
    }

    private static TokenFilterFactory tokenFilter(String name, UnaryOperator<TokenStream> filter) {
        return new TokenFilterFactory() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public TokenStream create(TokenStream tokens) {
                return filter.apply(tokens);
            }
        };
    }

    private static CharFilterFactory charFilter(String name, UnaryOperator<Reader> filter) {
        return new AbstractCharFilterFactory(name) {
            @Override
            public Reader create(Reader text) {
                return filter.apply(text);
            }
        };
    }
}
