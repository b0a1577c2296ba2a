package host;

import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.elasticsearch.action.ActionListener;
import org.elasticsearch.cluster.node.DiscoveryNode;
import org.elasticsearch.common.breaker.CircuitBreaker;
import org.elasticsearch.common.component.AbstractLifecycleComponent;
import org.elasticsearch.common.io.stream.RecyclerBytesStreamOutput;
import org.elasticsearch.common.transport.BoundTransportAddress;
import org.elasticsearch.common.transport.TransportAddress;
import org.elasticsearch.common.util.PageCacheRecycler;
import org.elasticsearch.transport.BytesRefRecycler;
import org.elasticsearch.transport.ConnectTransportException;
import org.elasticsearch.transport.ConnectionProfile;
import org.elasticsearch.transport.Transport;
import org.elasticsearch.transport.TransportMessageListener;
import org.elasticsearch.transport.TransportStats;

/** The transport of a node that is alone: it binds no port and opens no connection. */
final class LoopbackTransport extends AbstractLifecycleComponent implements Transport {
    private final RequestHandlers requestHandlers = new RequestHandlers();
    private final ResponseHandlers responseHandlers = new ResponseHandlers();
    private final PageCacheRecycler recycler;
    private final BoundTransportAddress address;

    LoopbackTransport(PageCacheRecycler recycler) {
        this.recycler = recycler;
        var loopback = new TransportAddress(InetAddress.getLoopbackAddress(), 9300);
        this.address = new BoundTransportAddress(new TransportAddress[] { loopback }, loopback);
    }

    @Override
    public void openConnection(DiscoveryNode node, ConnectionProfile profile, ActionListener<Connection> listener) {
        listener.onFailure(new ConnectTransportException(node, "this node is alone"));
    }

    // No @Override: 8.19's interface has it without an argument.
    public RecyclerBytesStreamOutput newNetworkBytesStream(CircuitBreaker breaker) {
        return new RecyclerBytesStreamOutput(new BytesRefRecycler(recycler));
    }

    @Override
    public BoundTransportAddress boundAddress() {
        return address;
    }

    @Override
    public BoundTransportAddress boundRemoteIngressAddress() {
        return null;
    }

    @Override
    public Map<String, BoundTransportAddress> profileBoundAddresses() {
        return Map.of();
    }

    @Override
    public TransportAddress[] addressesFromString(String address) {
        return new TransportAddress[0];
    }

    @Override
    public List<String> getDefaultSeedAddresses() {
        return List.of();
    }

    @Override
    public TransportStats getStats() {
        return new TransportStats(0, 0, 0, 0, 0, 0, new long[0], new long[0], Map.of());
    }

    @Override
    public RequestHandlers getRequestHandlers() {
        return requestHandlers;
    }

    @Override
    public ResponseHandlers getResponseHandlers() {
        return responseHandlers;
    }

    @Override
    public void setMessageListener(TransportMessageListener listener) {}

    @Override
    protected void doStart() {}

    @Override
    protected void doStop() {}

    @Override
    protected void doClose() {}
}
