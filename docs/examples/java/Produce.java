// JSON lines from stdin into one partition, each exactly once and in their order. Needs a JDK, 17 or newer.
//   java Produce.java URL TOPIC PARTITION <lines
// Producer ids and sequences as in docs/produce.md, one request at a time.
// Says where each batch is stored; ends with 0 only if all are.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Produce {
    static final int BATCH_LINES = Integer.parseInt(System.getenv().getOrDefault("BATCH_LINES", "100"));
    static final Duration GIVE_UP = Duration.ofMinutes(10);
    static final long SEQUENCES = 1L << 31; // after 2^31-1 comes 0

    static final HttpClient client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();

    final URI records;
    final String producerId;
    final String producerEpoch;
    long sequence = 0;
    long stored = 0; // lines

    Produce(String url, String topic, String partition) throws InterruptedException {
        records = URI.create(url + "/v1/topics/" + topic + "/partitions/" + partition + "/records");
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/v1/producers"))
                .timeout(Duration.ofSeconds(40)).POST(HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> answer = answered(request);
        if (answer.statusCode() != 201) {
            throw new IllegalStateException("no producer id: " + answer.body());
        }
        producerId = member(answer.body(), "producer_id");
        producerEpoch = member(answer.body(), "producer_epoch");
    }

    /** Stores a batch and says where, or throws: then it is refused for good, or nobody knows what became of it. */
    String store(List<String> lines) throws InterruptedException {
        String body = String.join("\n", lines) + "\n";
        HttpRequest request = HttpRequest.newBuilder(records).timeout(Duration.ofSeconds(40))
                .header("Content-Type", "application/x-ndjson")
                .header("Producer-Id", producerId)
                .header("Producer-Epoch", producerEpoch)
                .header("Producer-Seq", Long.toString(sequence))
                .POST(HttpRequest.BodyPublishers.ofString(body, StandardCharsets.UTF_8)).build();
        HttpResponse<String> answer = answered(request);
        String where = "";
        if (answer.statusCode() == 200) {
            where = " at " + member(answer.body(), "base_offset");
        } else if (!"duplicate_older_than_window".equals(member(answer.body(), "code"))) {
            throw new IllegalStateException("refused for good: " + answer.body());
        }
        sequence = (sequence + lines.size()) % SEQUENCES;
        stored += lines.size();
        return "stored lines " + (stored - lines.size() + 1) + "-" + stored + where;
    }

    /** The first answer that asking again would not change. */
    static HttpResponse<String> answered(HttpRequest request) throws InterruptedException {
        long since = System.nanoTime();
        for (int tries = 0; System.nanoTime() - since < GIVE_UP.toNanos(); tries++) {
            HttpResponse<String> answer = null;
            try {
                answer = client.send(request, BodyHandlers.ofString());
                int status = answer.statusCode();
                if (status != 408 && status != 429 && status < 500) {
                    return answer;
                }
            } catch (IOException cut) {
                // No whole answer: nobody knows whether the request was carried out. Asking again finds out.
            }
            pause(answer, tries);
        }
        throw new IllegalStateException("gave up: the batch may be stored or not");
    }

    static void pause(HttpResponse<String> answer, int tries) throws InterruptedException {
        double backoffMs = Math.min(50 << Math.min(tries, 6), 2000) * ThreadLocalRandom.current().nextDouble(0.5, 1.5);
        long askedS = answer == null ? 0 : answer.headers().firstValueAsLong("Retry-After").orElse(0);
        Thread.sleep(askedS > 0 ? askedS * 1000 : (long) backoffMs);
    }

    /** A number or a plain string of a JSON document, without a JSON library. */
    static String member(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([\\w-]+)").matcher(json);
        return found.find() ? found.group(1) : null;
    }

    public static void main(String[] args) throws Exception {
        try {
            Produce producer = new Produce(args[0], args[1], args[2]);
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            List<String> lines = new ArrayList<>();
            for (String line; (line = input.readLine()) != null;) {
                lines.add(line);
                if (lines.size() == BATCH_LINES) {
                    System.out.println(producer.store(lines));
                    lines.clear();
                }
            }
            if (!lines.isEmpty()) {
                System.out.println(producer.store(lines));
            }
        } catch (IllegalStateException error) {
            System.err.println(error.getMessage());
            System.exit(1);
        }
    }
}
