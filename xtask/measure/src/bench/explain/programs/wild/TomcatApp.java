// Tomcat, embedded: TomcatApp PORT THREADS; what it does says BENCH_MODE, as in app.py.
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.catalina.startup.Tomcat;

public class TomcatApp {
    public static void main(String[] args) throws Exception {
        String mode = System.getenv("BENCH_MODE");
        AtomicInteger calls = new AtomicInteger();
        byte[] body = "Hello, World!\n".repeat(20).getBytes();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(".");
        tomcat.setPort(Integer.parseInt(args[0]));
        tomcat.getConnector().setProperty("maxThreads", args[1]);
        tomcat.getConnector().setProperty("minSpareThreads", args[1]);
        var context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "app", new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
                int n = calls.incrementAndGet();
                try {
                    if (mode.equals("think")) Thread.sleep(100);
                    if (mode.equals("cold") && n == 1) Thread.sleep(1500);
                } catch (InterruptedException e) { return; }
                response.setContentLength(body.length);
                response.getOutputStream().write(body);
            }
        });
        context.addServletMappingDecoded("/", "app");
        tomcat.start();
        tomcat.getServer().await();
    }
}
