package launch;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.KeyStoreWrapper;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/**
 * Starts one Elasticsearch node: {@code Host HOME PORT LICENSE}, where HOME/modules/host holds {@code host.HostPlugin}.
 * PORT 0 takes a free one. HOME/config/elasticsearch.yml makes it a member of a cluster, or adds to its settings. With ELASTICSEARCH_HOST_FOLLOW=stdin the node stops once its standard input ends,
 * so that it doesn't outlive whoever started it.
 */
public final class Host {
    public static void main(String[] args) throws Exception {
        Path home = Path.of(args[0]).toAbsolutePath();
        LogConfigurator.configureESLogging();
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("node.name", "host")
            .put("cluster.name", "host")
            .put("network.host", "127.0.0.1")
            .put("http.port", args[1])
            .put("host.license", args[2])
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .put(security(System.getenv("ELASTICSEARCH_HOST_PASSWORD"), args[2]))
            .build();
        Path own = home.resolve("config").resolve("elasticsearch.yml");
        settings = Files.exists(own)
            ? Settings.builder().put(settings).loadFromPath(own).build()
            : Settings.builder().put(settings).put("discovery.type", "single-node").put("transport.port", 0).build();
        var environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), home.resolve("config"), () -> "host");
        var modules = Modules.load(environment.modulesDir());
        var node = new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        int port = node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort();
        System.out.println("listening on 127.0.0.1:" + port);
        if ("stdin".equals(System.getenv("ELASTICSEARCH_HOST_FOLLOW"))) {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
            System.exit(0);
        }
        new CountDownLatch(1).await();
    }

    /** With a password for the user {@code elastic}, the node has a licence and security of Elasticsearch's own. */
    private static Settings security(String password, String license) throws Exception {
        if (password == null || password.isEmpty()) {
            return Settings.EMPTY;
        }
        var secrets = KeyStoreWrapper.create();
        secrets.setString("bootstrap.password", password.toCharArray());
        return Settings.builder()
            .put("xpack.security.enabled", true)
            .put("xpack.license.self_generated.type", license)
            .setSecureSettings(secrets)
            .build();
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (Exception e) {
            e.printStackTrace();
        }
    }
}
