// The story of README.md for kafka-clients, from 2.1 on: the same source for every version.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final int PARTITIONS = 6;
    static final long FIRST_TIME = 1_700_000_000_000L;
    static final String[] CODECS = {"gzip", "snappy", "lz4", "zstd"};

    static String servers, topic;
    static int records;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        topic = args[1];
        int replicas = Integer.parseInt(args[2]);
        records = Integer.parseInt(args[3]);
        double seconds = Double.parseDouble(args[4]);
        try (AdminClient admin = AdminClient.create(properties())) {
            NewTopic made = new NewTopic(topic, PARTITIONS, (short) replicas);
            admin.createTopics(Collections.singleton(made)).all().get(60, TimeUnit.SECONDS);
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicBoolean isDone = new AtomicBoolean();
        ExecutorService pool = Executors.newCachedThreadPool();
        List<Future<Integer>> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            members.add(pool.submit(() -> read(seen, isDone)));
        }
        Thread.sleep(1000);
        for (int part = 0; part < CODECS.length; part++) {
            produce(CODECS[part], part * records / 4, (part + 1) * records / 4, seconds / 4);
            if (part == 1) members.add(pool.submit(() -> read(seen, isDone)));
        }
        long deadline = System.currentTimeMillis() + 90_000;
        while (seen.size() < records && System.currentTimeMillis() < deadline) Thread.sleep(100);
        isDone.set(true);
        List<Integer> counts = new ArrayList<>();
        for (Future<Integer> one : members) counts.add(one.get(60, TimeUnit.SECONDS));
        pool.shutdown();
        System.out.printf(
            "{\"seen\": %d, \"members\": %s, \"committed\": %d, \"after_half\": %d}%n",
            seen.size(), counts, committed(), afterHalf());
    }

    static Properties properties() {
        Properties all = new Properties();
        all.put("bootstrap.servers", servers);
        return all;
    }

    static void produce(String codec, int from, int to, double seconds) throws Exception {
        Properties all = properties();
        all.put("enable.idempotence", "true");
        all.put("compression.type", codec);
        all.put("linger.ms", "5");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(all, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                String text = Integer.toString(number);
                sent.add(producer.send(new ProducerRecord<>(topic, null, FIRST_TIME + number, "k" + number % 97, text)));
                if (number % 20 == 0) Thread.sleep((long) (seconds * 20_000 / (to - from)));
            }
        }
        for (Future<RecordMetadata> one : sent) one.get();
    }

    static Consumer<String, String> consumer() {
        Properties all = properties();
        all.put("group.id", topic);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("session.timeout.ms", "6000");
        all.put("heartbeat.interval.ms", "1000");
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    static int read(Set<String> seen, AtomicBoolean isDone) {
        int count = 0;
        try (Consumer<String, String> consumer = consumer()) {
            consumer.subscribe(Collections.singleton(topic));
            while (!isDone.get()) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> one : found) seen.add(one.value());
                count += found.count();
                try {
                    if (!found.isEmpty()) consumer.commitSync();
                } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException moved) {
                    // The partitions are another member's now, which reads these records again.
                }
            }
        }
        return count;
    }

    static List<TopicPartition> partitions() {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < PARTITIONS; number++) all.add(new TopicPartition(topic, number));
        return all;
    }

    static long committed() throws Exception {
        try (AdminClient admin = AdminClient.create(properties())) {
            long sum = 0;
            for (OffsetAndMetadata one : admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values()) {
                sum += one.offset();
            }
            return sum;
        }
    }

    /** Seeks to the time of the record in the middle, and reads to the end. */
    static long afterHalf() {
        Map<TopicPartition, Long> times = new HashMap<>();
        for (TopicPartition one : partitions()) times.put(one, FIRST_TIME + records / 2);
        try (Consumer<String, String> consumer = consumer()) {
            consumer.assign(partitions());
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions());
            consumer.offsetsForTimes(times).forEach((one, at) -> consumer.seek(one, at == null ? ends.get(one) : at.offset()));
            long deadline = System.currentTimeMillis() + 30_000, count = 0;
            while (System.currentTimeMillis() < deadline) {
                count += consumer.poll(Duration.ofMillis(200)).count();
                boolean isAtEnd = true;
                for (TopicPartition one : partitions()) isAtEnd &= consumer.position(one) >= ends.get(one);
                if (isAtEnd) break;
            }
            return count;
        }
    }
}
