// Undertow: UndertowApp PORT THREADS; what it does says BENCH_MODE, as in app.py.
import io.undertow.Undertow;
import io.undertow.server.handlers.BlockingHandler;
import java.util.concurrent.atomic.AtomicInteger;

public class UndertowApp {
    public static void main(String[] args) {
        String mode = System.getenv("BENCH_MODE");
        AtomicInteger calls = new AtomicInteger();
        String body = "Hello, World!\n".repeat(20);
        Undertow.builder()
            .addHttpListener(Integer.parseInt(args[0]), "0.0.0.0")
            .setIoThreads(1)
            .setWorkerThreads(Integer.parseInt(args[1]))
            .setHandler(new BlockingHandler(exchange -> {
                int n = calls.incrementAndGet();
                if (mode.equals("think")) Thread.sleep(100);
                if (mode.equals("cold") && n == 1) Thread.sleep(1500);
                exchange.getResponseSender().send(body);
            }))
            .build()
            .start();
    }
}
