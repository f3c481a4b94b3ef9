// The JDK's own server: Server PORT MODE.
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

public class Server {
    static volatile Object sink;

    static HttpServer over(String store, InetSocketAddress at) throws Exception {
        char[] password = "bench".toCharArray();
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (var file = new FileInputStream(store)) {
            keys.load(file, password);
        }
        KeyManagerFactory managers = KeyManagerFactory.getInstance("SunX509");
        managers.init(keys, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(managers.getKeyManagers(), null, null);
        HttpsServer server = HttpsServer.create(at, 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context));
        return server;
    }

    public static void main(String[] args) throws Exception {
        boolean garbage = args[1].equals("garbage");
        List<Object> kept = new ArrayList<>();
        if (garbage) {
            // Small objects that live: what a collector has to walk through each time.
            for (int i = 0; i < 1_700_000; i++) {
                kept.add(new long[] {i});
            }
        }
        byte[] body = "Hello, World!\n".repeat(20).getBytes();
        InetSocketAddress at = new InetSocketAddress(Integer.parseInt(args[0]));
        String store = System.getenv("BENCH_TLS_P12");
        HttpServer server = store == null ? HttpServer.create(at, 0) : over(store, at);
        server.createContext("/", exchange -> {
            if (garbage) {
                List<Object> some = new ArrayList<>();
                for (int i = 0; i < 400_000; i++) {
                    some.add(new long[] {i});
                }
                sink = some;
            }
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        Thread.sleep(Long.MAX_VALUE);
        System.out.println(kept.size());
    }
}
