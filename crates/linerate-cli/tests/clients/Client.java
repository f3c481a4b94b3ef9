// CAFILE PORT VERSION: java.net.http, a body there and back on several connections.
import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    public static void main(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(words[0])) {
            store.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        SSLParameters parameters = new SSLParameters();
        parameters.setProtocols(new String[] {"TLSv" + words[2]});
        byte[] body = new byte[3_000_000];
        Arrays.fill(body, (byte) 'x');
        String agreed = "";
        for (int i = 0; i < 2; i++) {
            // A client of its own has a connection of its own; sessions are the context's.
            HttpClient client = HttpClient.newBuilder().sslContext(context).sslParameters(parameters)
                .version(HttpClient.Version.HTTP_1_1).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create("https://localhost:" + words[1] + "/echo"))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
            HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (!Arrays.equals(answer.body(), body)) throw new Exception("another body");
            agreed = answer.sslSession().get().getProtocol();
        }
        System.out.println(agreed);
        System.exit(0);
    }
}
