import java.io.FileWriter;
import java.io.Writer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

/** What programs do with Kafka's own Java client: one result for each method. */
public final class Smoke {
    private static final String BROKER = System.getenv("BROKER");

    private interface Case {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("cluster", Smoke::cluster);
        cases.put("topics", Smoke::topics);
        cases.put("configs", Smoke::configs);
        cases.put("compacted", Smoke::compacted);
        cases.put("codecs", Smoke::codecs);
        cases.put("acks", Smoke::acks);
        cases.put("tooLarge", Smoke::tooLarge);
        cases.put("offsets", Smoke::offsets);
        cases.put("deleteRecords", Smoke::deleteRecords);
        cases.put("groupClassic", () -> group("classic", Map.of("partition.assignment.strategy", RangeAssignor.class.getName())));
        cases.put("groupCooperative", () -> group("classic", Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName())));
        cases.put("groupConsumer", () -> group("consumer", Map.of()));
        cases.put("groupConsumerRange", () -> group("consumer", Map.of("group.remote.assignor", "range")));
        cases.put("patternClassic", () -> pattern("classic"));
        cases.put("patternConsumer", () -> pattern("consumer"));
        cases.put("patternBroker", Smoke::patternBroker);
        cases.put("staticMember", Smoke::staticMember);
        cases.put("groupsAdmin", Smoke::groupsAdmin);
        cases.put("autoCommit", Smoke::autoCommit);
        cases.put("seekAndPause", Smoke::seekAndPause);
        cases.put("logDirs", Smoke::logDirs);
        cases.put("acls", Smoke::acls);
        cases.put("reassignments", Smoke::reassignments);
        try (Writer results = new FileWriter(System.getenv("RESULTS"), true)) {
            for (Map.Entry<String, Case> c : cases.entrySet()) {
                if (args.length > 0 && !Arrays.asList(args).contains(c.getKey())) {
                    continue;
                }
                System.out.println("--- " + c.getKey());
                long began = System.nanoTime();
                String outcome = "pass";
                try {
                    c.getValue().run();
                } catch (Throwable e) {
                    e.printStackTrace(System.out);
                    outcome = "fail";
                }
                System.out.printf("%s in %.1f s%n", outcome, (System.nanoTime() - began) / 1e9);
                results.write(outcome + " " + c.getKey() + "\n");
                results.flush();
            }
        }
        System.exit(0); // clients of what failed may have threads left
    }

    private static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    private static String unique(String name) {
        return "java-" + name + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    private static <T> T eventually(String what, Callable<T> found) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (true) {
            T value = found.call();
            if (value != null && !Boolean.FALSE.equals(value)) {
                return value;
            }
            check(System.nanoTime() < end, what + " did not come about");
            Thread.sleep(50);
        }
    }

    /** causeOf runs what has to fail and returns why it did. */
    private static Throwable causeOf(Callable<?> f) throws Exception {
        try {
            f.call();
        } catch (ExecutionException e) {
            return e.getCause();
        } catch (KafkaException e) {
            return e;
        }
        throw new AssertionError("it did not fail");
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", BROKER, "default.api.timeout.ms", "30000"));
    }

    private static void create(String topic, int partitions, Map<String, String> config) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(config))).all().get();
            eventually("topic " + topic, () -> {
                try {
                    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == partitions;
                } catch (ExecutionException e) {
                    check(e.getCause() instanceof UnknownTopicOrPartitionException, "" + e);
                    return false;
                }
            });
        }
    }

    private static KafkaProducer<String, String> producer(Map<String, ?> config) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", BROKER, "delivery.timeout.ms", 60000));
        all.putAll(config);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private static void produce(String topic, Integer partition, int count, Map<String, ?> config) throws Exception {
        try (KafkaProducer<String, String> producer = producer(config)) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                ProducerRecord<String, String> r = new ProducerRecord<>(topic, partition, "k" + i, "value " + i);
                r.headers().add(new RecordHeader("n", new byte[] {(byte) i}));
                sent.add(producer.send(r));
            }
            producer.flush();
            for (java.util.concurrent.Future<RecordMetadata> f : sent) {
                f.get();
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String group, Map<String, ?> config) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", BROKER, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        if (group != null) {
            all.put("group.id", group);
        }
        all.putAll(config);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> c, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        eventually(count + " records", () -> {
            c.poll(Duration.ofMillis(200)).forEach(found::add);
            return found.size() >= count;
        });
        check(found.size() == count, found.size() + " records where " + count + " are due");
        return found;
    }

    private static void cluster() throws Exception {
        try (Admin admin = admin()) {
            DescribeClusterResult r = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            check(r.clusterId().get() != null && !r.nodes().get().isEmpty(), "an empty cluster");
            check(r.nodes().get().contains(r.controller().get()), "the controller is not among the nodes");
            check(r.authorizedOperations().get() != null, "no operations");
            admin.describeFeatures().featureMetadata().get();
            ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, "" + r.controller().get().id());
            check(!admin.describeConfigs(List.of(node)).all().get().get(node).entries().isEmpty(), "a broker without settings");
        }
    }

    private static void topics() throws Exception {
        String topic = unique("topics");
        create(topic, 2, Map.of());
        try (Admin admin = admin()) {
            Throwable why = causeOf(() -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
            check(why instanceof TopicExistsException, "" + why);
            why = causeOf(() -> admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
            check(why instanceof InvalidTopicException, "" + why);
            why = causeOf(() -> admin.createTopics(List.of(new NewTopic(unique("rf"), 1, (short) 5))).all().get());
            check(why instanceof InvalidReplicationFactorException, "" + why);
            why = causeOf(() -> admin.createTopics(List.of(new NewTopic(unique("config"), 1, (short) 1).configs(Map.of("no.such", "1")))).all().get());
            check(why instanceof InvalidConfigurationException, "" + why);
            String defaults = unique("defaults");
            CreateTopicsResult made = admin.createTopics(List.of(new NewTopic(defaults, Optional.empty(), Optional.empty())), new CreateTopicsOptions().validateOnly(true));
            check(made.numPartitions(defaults).get() >= 1 && made.replicationFactor(defaults).get() >= 1, "no defaults");
            TopicDescription d = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(d.partitions().size() == 2 && d.partitions().get(0).isr().size() == 1, "" + d);
            check(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(d.topicId()))).allTopicIds().get().get(d.topicId()).name().equals(topic), "by id");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            eventually("partitions", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 4);
            why = causeOf(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
            check(why instanceof InvalidPartitionsException, "" + why);
            check(admin.listTopics().names().get().contains(topic), "not listed");
            admin.deleteTopics(List.of(topic)).all().get();
            eventually("the end of the topic", () -> !admin.listTopics().names().get().contains(topic));
            why = causeOf(() -> admin.deleteTopics(List.of(topic)).all().get());
            check(why instanceof UnknownTopicOrPartitionException, "" + why);
        }
    }

    private static void configs() throws Exception {
        String topic = unique("configs");
        create(topic, 1, Map.of("retention.ms", "3600000", "max.message.bytes", "500000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            Callable<Config> read = () -> admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(resource);
            Config config = read.call();
            check(config.get("retention.ms").value().equals("3600000") && !config.get("retention.ms").isDefault(), "" + config.get("retention.ms"));
            check(config.get("max.message.bytes").value().equals("500000"), "" + config.get("max.message.bytes"));
            check(config.get("cleanup.policy").value().equals("delete") && config.get("cleanup.policy").isDefault(), "" + config.get("cleanup.policy"));
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("max.message.bytes", ""), AlterConfigOp.OpType.DELETE)))).all().get();
            eventually("a change", () -> read.call().get("retention.ms").value().equals("7200000") && read.call().get("max.message.bytes").value().equals("1048588"));
            Throwable why = causeOf(() -> admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "x"), AlterConfigOp.OpType.SET)))).all().get());
            check(why instanceof InvalidConfigurationException, "" + why);
        }
    }

    /** compacted is what a program that keeps tables in Kafka asks for. */
    private static void compacted() throws Exception {
        create(unique("compacted"), 1, Map.of("cleanup.policy", "compact"));
    }

    private static void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = unique(codec);
            create(topic, 1, Map.of());
            produce(topic, 0, 300, Map.of("compression.type", codec, "linger.ms", 20));
            try (KafkaConsumer<String, String> c = consumer(null, Map.of())) {
                TopicPartition p = new TopicPartition(topic, 0);
                c.assign(List.of(p));
                c.seekToBeginning(List.of(p));
                List<ConsumerRecord<String, String>> found = take(c, 300);
                for (int i = 0; i < found.size(); i++) {
                    ConsumerRecord<String, String> r = found.get(i);
                    check(r.offset() == i && r.value().equals("value " + i) && r.key().equals("k" + i), "" + r);
                    check(r.headers().lastHeader("n").value()[0] == (byte) i, "" + r);
                }
            }
        }
    }

    private static void acks() throws Exception {
        String topic = unique("acks");
        create(topic, 1, Map.of());
        for (String acks : List.of("0", "1", "all")) {
            produce(topic, 0, 50, Map.of("acks", acks, "enable.idempotence", acks.equals("all")));
        }
        try (KafkaConsumer<String, String> c = consumer(null, Map.of())) {
            c.assign(List.of(new TopicPartition(topic, 0)));
            take(c, 150);
        }
    }

    private static void tooLarge() throws Exception {
        String topic = unique("large");
        create(topic, 1, Map.of("max.message.bytes", "10000"));
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            Throwable why = causeOf(() -> producer.send(new ProducerRecord<>(topic, "x".repeat(20000))).get());
            check(why instanceof RecordTooLargeException, "" + why);
            producer.send(new ProducerRecord<>(topic, "x".repeat(5000))).get();
        }
    }

    private static void offsets() throws Exception {
        String topic = unique("offsets");
        create(topic, 1, Map.of());
        TopicPartition p = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", 100, "compression.type", "gzip"))) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1000000L + 1000 * i, "k", "v" + i));
            }
        }
        try (KafkaConsumer<String, String> c = consumer(null, Map.of())) {
            check(c.beginningOffsets(List.of(p)).get(p) == 0 && c.endOffsets(List.of(p)).get(p) == 10, "ends");
            check(c.offsetsForTimes(Map.of(p, 1004500L)).get(p).offset() == 5, "a time");
            check(c.offsetsForTimes(Map.of(p, 2000000L)).get(p) == null, "a time that is not there");
            check(c.partitionsFor(topic).size() == 1 && c.listTopics().containsKey(topic), "partitions");
        }
        try (Admin admin = admin()) {
            check(listed(admin, p, OffsetSpec.earliest()) == 0 && listed(admin, p, OffsetSpec.latest()) == 10, "ends");
            check(listed(admin, p, OffsetSpec.forTimestamp(1008000)) == 8, "a time");
            check(listed(admin, p, OffsetSpec.maxTimestamp()) == 9, "the largest time");
        }
    }

    private static long listed(Admin admin, TopicPartition p, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(p, spec)).partitionResult(p).get().offset();
    }

    private static void deleteRecords() throws Exception {
        String topic = unique("delete");
        create(topic, 1, Map.of());
        produce(topic, 0, 10, Map.of());
        TopicPartition p = new TopicPartition(topic, 0);
        try (Admin admin = admin(); KafkaConsumer<String, String> c = consumer(null, Map.of())) {
            check(admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(p).get().lowWatermark() == 4, "watermark");
            check(listed(admin, p, OffsetSpec.earliest()) == 4, "start");
            Throwable why = causeOf(() -> admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(99))).all().get());
            check(why instanceof org.apache.kafka.common.errors.OffsetOutOfRangeException, "" + why);
            c.assign(List.of(p));
            c.seek(p, 0); // where nothing is any more: it goes to the start
            check(take(c, 6).get(0).offset() == 4, "first");
        }
    }

    /** group has two members share a topic, and one of them take over. */
    private static void group(String protocol, Map<String, ?> config) throws Exception {
        String topic = unique("group");
        create(topic, 4, Map.of());
        for (int p = 0; p < 4; p++) {
            produce(topic, p, 10, Map.of());
        }
        Map<String, Object> all = new HashMap<>(config);
        all.put("group.protocol", protocol);
        try (KafkaConsumer<String, String> a = consumer(topic, all)) {
            a.subscribe(List.of(topic));
            take(a, 40);
            a.commitSync();
            try (KafkaConsumer<String, String> b = consumer(topic, all)) {
                b.subscribe(List.of(topic));
                Thread other = polling(b);
                eventually("two partitions each", () -> {
                    a.poll(Duration.ofMillis(50));
                    return a.assignment().size() == 2;
                });
                other.interrupt();
                other.join();
            }
            eventually("all partitions", () -> {
                a.poll(Duration.ofMillis(50));
                return a.assignment().size() == 4;
            });
            Map<TopicPartition, OffsetAndMetadata> committed = a.committed(Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 3)));
            check(committed.values().stream().allMatch(o -> o.offset() == 10), "" + committed);
        }
        produce(topic, 2, 1, Map.of());
        try (KafkaConsumer<String, String> c = consumer(topic, all)) {
            c.subscribe(List.of(topic));
            ConsumerRecord<String, String> r = take(c, 1).get(0);
            check(r.partition() == 2 && r.offset() == 10, "" + r);
        }
    }

    /** polling polls in a thread of its own until that is interrupted. */
    private static Thread polling(KafkaConsumer<String, String> c) {
        Thread t = new Thread(() -> {
            try {
                while (!Thread.currentThread().isInterrupted()) {
                    c.poll(Duration.ofMillis(50));
                }
            } catch (InterruptException e) {
                Thread.interrupted();
            }
        });
        t.start();
        return t;
    }

    private static void pattern(String protocol) throws Exception {
        String prefix = unique("pattern");
        create(prefix + "-a", 1, Map.of());
        produce(prefix + "-a", 0, 1, Map.of());
        try (KafkaConsumer<String, String> c = consumer(prefix, Map.of("group.protocol", protocol, "metadata.max.age.ms", 1000))) {
            c.subscribe(Pattern.compile(prefix + "-.*"));
            take(c, 1);
            c.commitSync();
            create(prefix + "-b", 1, Map.of());
            produce(prefix + "-b", 0, 1, Map.of());
            check(take(c, 1).get(0).topic().equals(prefix + "-b"), "the second topic");
        }
    }

    /** patternBroker has the broker look for topics. */
    private static void patternBroker() throws Exception {
        String prefix = unique("re2");
        create(prefix + "-a", 1, Map.of());
        produce(prefix + "-a", 0, 1, Map.of());
        try (KafkaConsumer<String, String> c = consumer(prefix, Map.of("group.protocol", "consumer"))) {
            c.subscribe(new SubscriptionPattern(prefix + "-(a|b)"));
            take(c, 1);
        }
    }

    private static void staticMember() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = unique("static");
            create(topic, 2, Map.of());
            produce(topic, 0, 1, Map.of());
            for (int i = 0; i < 2; i++) {
                try (KafkaConsumer<String, String> c = consumer(topic, Map.of("group.protocol", protocol, "group.instance.id", "one"))) {
                    c.subscribe(List.of(topic));
                    take(c, 1);
                }
            }
        }
    }

    private static void groupsAdmin() throws Exception {
        String topic = unique("admin");
        create(topic, 1, Map.of());
        produce(topic, 0, 5, Map.of());
        TopicPartition p = new TopicPartition(topic, 0);
        for (String protocol : List.of("classic", "consumer")) {
            String group = topic + "-" + protocol;
            try (Admin admin = admin()) {
                try (KafkaConsumer<String, String> c = consumer(group, Map.of("group.protocol", protocol))) {
                    c.subscribe(List.of(topic));
                    take(c, 5);
                    c.commitSync();
                    Thread other = polling(c);
                    ConsumerGroupDescription d = eventually("a stable group", () -> {
                        ConsumerGroupDescription got = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                        return got.groupState() == GroupState.STABLE ? got : null;
                    });
                    check(d.members().size() == 1 && d.members().iterator().next().assignment().topicPartitions().contains(p), "" + d);
                    Throwable why = causeOf(() -> admin.deleteConsumerGroups(List.of(group)).all().get());
                    check(why instanceof GroupNotEmptyException, "" + why);
                    why = causeOf(() -> admin.deleteConsumerGroupOffsets(group, Set.of(p)).all().get());
                    check(why instanceof GroupSubscribedToTopicException, "" + why);
                    other.interrupt();
                    other.join();
                }
                check(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "not listed");
                check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(p).offset() == 5, "offset");
                eventually("an empty group", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState() == GroupState.EMPTY);
                admin.alterConsumerGroupOffsets(group, Map.of(p, new OffsetAndMetadata(2, "m"))).all().get();
                check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(p).offset() == 2, "altered offset");
                admin.deleteConsumerGroupOffsets(group, Set.of(p)).all().get();
                check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(p) == null, "deleted offset");
                admin.deleteConsumerGroups(List.of(group)).all().get();
                Throwable why = causeOf(() -> admin.deleteConsumerGroups(List.of(group)).all().get());
                check(why instanceof GroupIdNotFoundException, "" + why);
            }
        }
    }

    private static void autoCommit() throws Exception {
        String topic = unique("auto");
        create(topic, 1, Map.of());
        produce(topic, 0, 5, Map.of());
        Map<String, Object> config = Map.of("enable.auto.commit", true, "auto.commit.interval.ms", 100);
        try (KafkaConsumer<String, String> c = consumer(topic, config)) {
            c.subscribe(List.of(topic));
            take(c, 5);
        }
        try (Admin admin = admin()) {
            check(admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 0)).offset() == 5, "offset");
        }
    }

    private static void seekAndPause() throws Exception {
        String topic = unique("seek");
        create(topic, 2, Map.of());
        produce(topic, 0, 20, Map.of());
        produce(topic, 1, 20, Map.of());
        TopicPartition p0 = new TopicPartition(topic, 0);
        TopicPartition p1 = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> c = consumer(null, Map.of("max.poll.records", 7))) {
            c.assign(List.of(p0, p1));
            c.pause(List.of(p1));
            check(take(c, 20).stream().allMatch(r -> r.partition() == 0), "a paused partition was read");
            c.seek(p0, 15);
            c.resume(List.of(p1));
            take(c, 25);
            c.seekToEnd(List.of(p0, p1));
            check(c.position(p0) == 20 && c.poll(Duration.ofMillis(300)).isEmpty(), "the end");
        }
    }

    private static void logDirs() throws Exception {
        String topic = unique("dirs");
        create(topic, 1, Map.of());
        produce(topic, 0, 100, Map.of());
        try (Admin admin = admin()) {
            int id = admin.describeCluster().controller().get().id();
            Collection<LogDirDescription> dirs = admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id).values();
            check(dirs.stream().anyMatch(d -> d.replicaInfos().containsKey(new TopicPartition(topic, 0)) && d.replicaInfos().get(new TopicPartition(topic, 0)).size() > 1000), "" + dirs);
        }
    }

    /** acls are off: the answer has to say so, or to have none. */
    private static void acls() throws Exception {
        try (Admin admin = admin()) {
            try {
                admin.describeAcls(AclBindingFilter.ANY).values().get();
            } catch (ExecutionException e) {
                check(e.getCause() instanceof SecurityDisabledException, "" + e);
            }
        }
    }

    private static void reassignments() throws Exception {
        try (Admin admin = admin()) {
            check(admin.listPartitionReassignments().reassignments().get().isEmpty(), "something moves");
        }
    }
}
