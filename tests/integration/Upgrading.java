import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

/** Java's client as it is, which offers HTTP/2 with each request: METHOD PATH BODY ... prints each status and answer. */
public class Upgrading {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int n = 1; n + 2 < arguments.length; n += 3) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + arguments[n + 1]))
                .method(arguments[n], BodyPublishers.ofString(arguments[n + 2]))
                .build();
            var response = client.send(request, BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
