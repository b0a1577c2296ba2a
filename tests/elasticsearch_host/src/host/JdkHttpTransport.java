package host;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.zip.GZIPInputStream;
import org.elasticsearch.action.ActionListener;
import org.elasticsearch.action.support.PlainActionFuture;
import org.elasticsearch.common.bytes.BytesArray;
import org.elasticsearch.common.bytes.BytesReference;
import org.elasticsearch.common.network.CloseableChannel;
import org.elasticsearch.http.HttpBody;
import org.elasticsearch.http.HttpChannel;
import org.elasticsearch.http.HttpRequest;
import org.elasticsearch.http.HttpResponse;
import org.elasticsearch.http.HttpServerChannel;
import org.elasticsearch.rest.ChunkedRestResponseBodyPart;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestStatus;

/** Elasticsearch's REST layer behind the JDK's HTTP server; one thread carries one exchange to its end. */
final class JdkHttpTransport extends HttpTransport {
    private static final Set<String> FRAMING = Set.of("content-length", "transfer-encoding");
    private final ExecutorService exchanges = Executors.newThreadPerTaskExecutor(
        Thread.ofPlatform().daemon().name("elasticsearch[host][http]", 0).factory());
    private HttpServer server;

    JdkHttpTransport(Parts parts) {
        super(parts);
    }

    @Override
    protected HttpServerChannel bind(InetSocketAddress address) throws IOException {
        server = HttpServer.create(address, 0);
        server.setExecutor(exchanges);
        server.createContext("/", this::handle);
        server.start();
        return new ListeningChannel(server.getAddress());
    }

    @Override
    protected void startInternal() {
        bindServer();
    }

    @Override
    protected void stopInternal() {
        server.stop(0);
        exchanges.shutdownNow();
    }

    private void handle(HttpExchange exchange) throws IOException {
        var answered = new CountDownLatch(1);
        var channel = new ExchangeChannel(exchange, answered);
        serverAcceptedChannel(channel);
        incomingRequest(new Request(exchange), channel);
        try {
            answered.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private abstract static class Channel implements CloseableChannel {
        private final List<ActionListener<Void>> closeListeners = new ArrayList<>();
        private boolean open = true;

        @Override
        public synchronized void addCloseListener(ActionListener<Void> listener) {
            if (open) closeListeners.add(listener);
            else listener.onResponse(null);
        }

        @Override
        public synchronized boolean isOpen() {
            return open;
        }

        @Override
        public void close() {
            List<ActionListener<Void>> waiting;
            synchronized (this) {
                open = false;
                waiting = List.copyOf(closeListeners);
                closeListeners.clear();
            }
            waiting.forEach(listener -> listener.onResponse(null));
        }
    }

    private static final class ListeningChannel extends Channel implements HttpServerChannel {
        private final InetSocketAddress address;

        ListeningChannel(InetSocketAddress address) {
            this.address = address;
        }

        @Override
        public InetSocketAddress getLocalAddress() {
            return address;
        }
    }

    private static final class ExchangeChannel extends Channel implements HttpChannel {
        private final HttpExchange exchange;
        private final CountDownLatch answered;

        ExchangeChannel(HttpExchange exchange, CountDownLatch answered) {
            this.exchange = exchange;
            this.answered = answered;
        }

        @Override
        public InetSocketAddress getLocalAddress() {
            return exchange.getLocalAddress();
        }

        @Override
        public InetSocketAddress getRemoteAddress() {
            return exchange.getRemoteAddress();
        }

        @Override
        public void sendResponse(HttpResponse response, ActionListener<Void> listener) {
            try (exchange) {
                ((Response) response).write(exchange);
                listener.onResponse(null);
            } catch (IOException e) {
                listener.onFailure(e);
            } finally {
                close();
                answered.countDown();
            }
        }
    }

    private static final class Response implements HttpResponse {
        private final RestStatus status;
        private final byte[] body;
        private final Map<String, List<String>> headers = new LinkedHashMap<>();

        Response(RestStatus status, byte[] body) {
            this.status = status;
            this.body = body;
        }

        @Override
        public void addHeader(String name, String value) {
            headers.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
        }

        @Override
        public boolean containsHeader(String name) {
            return headers.containsKey(name);
        }

        void write(HttpExchange exchange) throws IOException {
            headers.forEach((name, values) -> {
                if (FRAMING.contains(name.toLowerCase()) == false) exchange.getResponseHeaders().put(name, values);
            });
            boolean bodyless = body.length == 0 || exchange.getRequestMethod().equals("HEAD");
            exchange.sendResponseHeaders(status.getStatus(), bodyless ? -1 : body.length);
            if (bodyless == false) exchange.getResponseBody().write(body);
        }
    }

    private final class Request implements HttpRequest {
        private final RestRequest.Method method;
        private final String uri;
        private final Map<String, List<String>> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        private HttpBody body;

        Request(HttpExchange exchange) throws IOException {
            this.method = RestRequest.Method.valueOf(exchange.getRequestMethod());
            this.uri = exchange.getRequestURI().toString();
            this.headers.putAll(exchange.getRequestHeaders());
            var encoding = headers.remove("content-encoding");
            var in = encoding != null && encoding.contains("gzip") ? new GZIPInputStream(exchange.getRequestBody()) : exchange.getRequestBody();
            this.body = HttpBody.fromBytesReference(new BytesArray(in.readAllBytes()));
        }

        private Request(Request other) {
            this.method = other.method;
            this.uri = other.uri;
            this.headers.putAll(other.headers);
            this.body = other.body;
        }

        @Override
        public RestRequest.Method method() {
            return method;
        }

        @Override
        public String uri() {
            return uri;
        }

        @Override
        public Map<String, List<String>> getHeaders() {
            return headers;
        }

        @Override
        public HttpBody body() {
            return body;
        }

        // No @Override here and on hasContent: 8.19's interface lacks both.
        public void setBody(HttpBody body) {
            this.body = body;
        }

        public boolean hasContent() {
            return body.asFull().bytes().length() > 0;
        }

        @Override
        public List<String> strictCookies() {
            return List.of();
        }

        @Override
        public HttpVersion protocolVersion() {
            return HttpVersion.HTTP_1_1;
        }

        @Override
        public HttpRequest removeHeader(String name) {
            var copy = new Request(this);
            copy.headers.remove(name);
            return copy;
        }

        @Override
        public HttpResponse createResponse(RestStatus status, BytesReference content) {
            return new Response(status, BytesReference.toBytes(content));
        }

        @Override
        public HttpResponse createResponse(RestStatus status, ChunkedRestResponseBodyPart first) {
            var whole = new ByteArrayOutputStream();
            try {
                for (var part = first;;) {
                    while (part.isPartComplete() == false) {
                        try (var chunk = part.encodeChunk(1 << 16, recycler())) {
                            whole.writeBytes(BytesReference.toBytes(chunk));
                        }
                    }
                    if (part.isLastPart()) return new Response(status, whole.toByteArray());
                    var next = new PlainActionFuture<ChunkedRestResponseBodyPart>();
                    part.getNextPart(next);
                    part = next.actionGet();
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        @Override
        public Exception getInboundException() {
            return null;
        }

        @Override
        public void release() {}
    }
}
