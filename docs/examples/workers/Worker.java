// A worker of a consumer group with Java 11 or later and no library.
// usage: PENSTOCK_URL=http://127.0.0.1:8080 java Worker.java GROUP TOPIC MEMBER
//
// Java has no JSON parser. With "value":"base64" a pattern finds the values: they follow the headers of their record.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Worker {
    static final Pattern TOKEN = Pattern.compile("\"token\":\"([^\"]+)\"");
    static final Pattern VALUE = Pattern.compile("\\},\"value_base64\":\"([^\"]*)\"");
    static final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    static String poll(String url, String topic, String token) throws Exception {
        String body = "{\"topics\":[\"" + topic + "\"],\"token\":\"" + token + "\",\"wait_ms\":20000,\"value\":\"base64\"}";
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/poll")).timeout(Duration.ofSeconds(30))
                .header("Content-Type", "application/json").POST(BodyPublishers.ofString(body)).build();
        return client.send(request, BodyHandlers.ofString()).body(); // also of a problem: it has a code
    }

    static void work(String value) {
        System.out.println(value);
    }

    static void leave(String url) { // the other members get the partitions at once
        try {
            client.send(HttpRequest.newBuilder(URI.create(url)).DELETE().build(), BodyHandlers.discarding());
        } catch (Exception ignored) {
            // the session ends by itself
        }
    }

    public static void main(String[] arguments) throws Exception {
        String group = arguments[0], topic = arguments[1], member = arguments[2];
        String url = System.getenv("PENSTOCK_URL") + "/v1/groups/" + group + "/members/" + member;
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(url)));
        String token = "";
        while (true) {
            String answer;
            try {
                answer = poll(url, topic, token);
            } catch (java.io.IOException error) {
                Thread.sleep(1000);
                continue; // the same request once more
            }
            if (answer.contains("\"code\":\"stale_token\"")) {
                token = "";
                continue;
            }
            Matcher found = TOKEN.matcher(answer);
            if (!found.find()) {
                System.err.println(answer);
                Thread.sleep(1000);
                continue;
            }
            Matcher values = VALUE.matcher(answer);
            while (values.find()) {
                work(new String(Base64.getDecoder().decode(values.group(1)), StandardCharsets.UTF_8));
            }
            token = found.group(1); // the next poll commits these records
        }
    }
}
