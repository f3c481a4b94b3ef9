import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.security.KeyStore;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

public class Tls {
    public static void main(String[] args) throws Exception {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (var file = new FileInputStream("{store}")) {
            keys.load(file, "secret".toCharArray());
        }
        KeyManagerFactory managers = KeyManagerFactory.getInstance("SunX509");
        managers.init(keys, "secret".toCharArray());
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(managers.getKeyManagers(), null, null);
        HttpsServer server = HttpsServer.create(new InetSocketAddress("127.0.0.1", {port}), 1024);
        server.setHttpsConfigurator(new HttpsConfigurator(context));
        AtomicLong n = new AtomicLong();
        server.createContext("/", exchange -> {
            boolean counts = exchange.getRequestURI().getPath().equals("/count");
            byte[] body = (counts ? "" + n.get() : "hello".repeat(40)).getBytes();
            if (!counts) {
                n.incrementAndGet();
            }
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.setExecutor(java.util.concurrent.Executors.newFixedThreadPool(4));
        server.start();
    }
}
