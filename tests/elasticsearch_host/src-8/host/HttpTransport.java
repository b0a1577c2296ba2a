package host;

import org.apache.lucene.util.BytesRef;
import org.elasticsearch.common.network.NetworkService;
import org.elasticsearch.common.recycler.Recycler;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.http.AbstractHttpServerTransport;
import org.elasticsearch.telemetry.tracing.Tracer;
import org.elasticsearch.threadpool.ThreadPool;
import org.elasticsearch.xcontent.NamedXContentRegistry;

/** The server's HTTP transport, whose constructor takes another last argument in 9, as does the way it is started. */
abstract class HttpTransport extends AbstractHttpServerTransport {
    record Parts(Settings settings, NetworkService network, Recycler<BytesRef> recycler, ThreadPool threads,
                 NamedXContentRegistry xcontent, Dispatcher dispatcher, ClusterSettings cluster, Tracer tracer) {}

    HttpTransport(Parts parts) {
        super(parts.settings, parts.network, parts.recycler, parts.threads, parts.xcontent, parts.dispatcher, parts.cluster, parts.tracer);
    }

    protected abstract void startInternal();

    @Override
    protected void doStart() {
        startInternal();
    }
}
