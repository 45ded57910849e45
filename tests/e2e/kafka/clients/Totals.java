// Flink's Kafka source and sink: reads `key value` lines from a topic, sums the values of each key, and writes sums.
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Totals {
  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0], from = arguments[1], to = arguments[2], checkpoints = arguments[3];
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.dir", "file://" + checkpoints);
    settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    if (arguments.length > 4) settings.setString("execution.state-recovery.path", arguments[4]);
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    flink.setParallelism(2);
    flink.enableCheckpointing(500);
    KafkaSource<String> source = KafkaSource.<String>builder()
        .setBootstrapServers(servers).setTopics(from).setGroupId("totals")
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setProperty("partition.discovery.interval.ms", "2000")
        .setValueOnlyDeserializer(new SimpleStringSchema()).build();
    KafkaSink<String> sink = KafkaSink.<String>builder()
        .setBootstrapServers(servers).setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(to)
            .setValueSerializationSchema(new SimpleStringSchema()).build())
        .build();
    flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in")
        .map(line -> Tuple2.of(line.split(" ")[0], Long.parseLong(line.split(" ")[1])))
        .returns(Types.TUPLE(Types.STRING, Types.LONG))
        .keyBy(pair -> pair.f0)
        .sum(1)
        .map(pair -> pair.f0 + " " + pair.f1).returns(Types.STRING)
        .sinkTo(sink);
    flink.execute("totals");
  }
}
