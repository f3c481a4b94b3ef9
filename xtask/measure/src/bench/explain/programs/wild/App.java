// The JDK's server: App PORT THREADS; what it does says BENCH_MODE, as in app.py.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

public class App {
    public static void main(String[] args) throws Exception {
        String mode = System.getenv("BENCH_MODE");
        AtomicInteger calls = new AtomicInteger();
        byte[] body = "Hello, World!\n".repeat(20).getBytes();
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 1024);
        server.createContext("/", exchange -> {
            int n = calls.incrementAndGet();
            try {
                if (mode.equals("think")) Thread.sleep(100);
                if (mode.equals("cold") && n == 1) Thread.sleep(1500);
            } catch (InterruptedException e) {
                return;
            }
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[1])));
        server.start();
    }
}
