// Jetty 12: JettyApp PORT THREADS; what it does says BENCH_MODE, as in app.py.
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

public class JettyApp {
    public static void main(String[] args) throws Exception {
        String mode = System.getenv("BENCH_MODE");
        AtomicInteger calls = new AtomicInteger();
        byte[] body = "Hello, World!\n".repeat(20).getBytes();
        // An acceptor and a selector have a thread each.
        int threads = Integer.parseInt(args[1]) + 2;
        Server server = new Server(new QueuedThreadPool(threads, threads, 60_000, 0, null, null));
        ServerConnector connector = new ServerConnector(server, 1, 1);
        connector.setPort(Integer.parseInt(args[0]));
        server.addConnector(connector);
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) throws Exception {
                int n = calls.incrementAndGet();
                if (mode.equals("think")) Thread.sleep(100);
                if (mode.equals("cold") && n == 1) Thread.sleep(1500);
                response.getHeaders().put(HttpHeader.CONTENT_LENGTH, body.length);
                response.write(true, ByteBuffer.wrap(body), callback);
                return true;
            }
        });
        server.start();
        server.join();
    }
}
