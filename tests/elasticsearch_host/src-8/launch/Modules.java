package launch;

import java.nio.file.Path;
import java.util.Set;
import org.elasticsearch.plugins.PluginBundle;
import org.elasticsearch.plugins.PluginsLoader;

final class Modules {
    static Set<PluginBundle> load(Path modules) {
        return PluginsLoader.loadModulesBundles(modules);
    }
}
