// The JDK's own server: Server PORT MODE.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;

public class Server {
    static volatile Object sink;

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
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 0);
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
