// A Kafka Streams application: counts records by the first letter of their values, with a repartition topic and a
// state store whose changelog restores it. Arguments: bootstrap servers, application id, input, output, state directory.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class Counts {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value.substring(0, 1), Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        Properties all = new Properties();
        all.put("bootstrap.servers", args[0]);
        all.put("application.id", args[1]);
        all.put("state.dir", args[4]);
        all.put("replication.factor", args[5]);
        all.put("commit.interval.ms", 500);
        all.put("num.stream.threads", 2);
        all.put("session.timeout.ms", 6000);
        all.put("heartbeat.interval.ms", 1000);
        all.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), all);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setGlobalStateRestoreListener(new Restored());
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    static class Restored implements org.apache.kafka.streams.processor.StateRestoreListener {
        public void onRestoreStart(org.apache.kafka.common.TopicPartition of, String store, long from, long to) {}
        public void onBatchRestored(org.apache.kafka.common.TopicPartition of, String store, long end, long count) {}
        public void onRestoreEnd(org.apache.kafka.common.TopicPartition of, String store, long count) {
            System.out.println("restored " + of + " " + count);
        }
    }
}
