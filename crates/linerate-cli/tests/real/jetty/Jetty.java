// Jetty 12 with HTTP/2 in clear text and over TLS: Jetty PORT TLS-PORT STORE. It answers with the
// length of the request's body, `/count` with how many other requests there were, and `/large` with
// 300,000 bytes.
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;
import org.eclipse.jetty.alpn.server.ALPNServerConnectionFactory;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.http2.server.HTTP2ServerConnectionFactory;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.*;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.ssl.SslContextFactory;

class Jetty {
    static void listen(Server server, String port, ConnectionFactory... factories) {
        ServerConnector connector = new ServerConnector(server, factories);
        connector.setHost("127.0.0.1");
        connector.setPort(Integer.parseInt(port));
        connector.setAcceptQueueSize(1024);
        server.addConnector(connector);
    }

    public static void main(String[] arguments) throws Exception {
        AtomicLong n = new AtomicLong();
        Server server = new Server();
        HttpConfiguration configuration = new HttpConfiguration();
        SslContextFactory.Server tls = new SslContextFactory.Server();
        tls.setKeyStorePath(arguments[2]);
        tls.setKeyStorePassword("secret");
        tls.setSniRequired(false);
        ALPNServerConnectionFactory alpn = new ALPNServerConnectionFactory();
        alpn.setDefaultProtocol("http/1.1");
        // The tests wait for the other port: it is the last to listen.
        listen(server, arguments[1], new SslConnectionFactory(tls, "alpn"), alpn,
            new HTTP2ServerConnectionFactory(configuration), new HttpConnectionFactory(configuration));
        listen(server, arguments[0], new HttpConnectionFactory(configuration), new HTTP2CServerConnectionFactory(configuration));
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) throws Exception {
                byte[] body;
                if (Request.getPathInContext(request).equals("/count")) {
                    body = Long.toString(n.get()).getBytes();
                } else {
                    n.incrementAndGet();
                    int length = Content.Source.asByteBuffer(request).remaining();
                    body = Request.getPathInContext(request).equals("/large") ? new byte[300_000] : ("took " + length).getBytes();
                }
                response.write(true, ByteBuffer.wrap(body), callback);
                return true;
            }
        });
        server.start();
        server.join();
    }
}
