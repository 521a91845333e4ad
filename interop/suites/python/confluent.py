"""confluent_kafka, that is librdkafka, of the version that is installed."""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from smoke import BROKER, eventually, main, unique

LIBRARY = confluent_kafka.libversion()[1]
CURRENT = LIBRARY >= 0x020C0000  # the consumer protocol is there from 2.12 on
admin = AdminClient({"bootstrap.servers": BROKER})


def create(topic, partitions=1, config=None):
    futures = admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])
    futures[topic].result(30)
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == partitions)


def produce(topic, values, partition=None, **config):
    errors, offsets = [], []

    def delivered(err, msg):
        if err:
            errors.append(err)
        else:
            offsets.append((msg.partition(), msg.offset()))

    producer = Producer(dict({"bootstrap.servers": BROKER, "acks": "all"}, **{k.replace("_", "."): v for k, v in config.items()}))
    for i, value in enumerate(values):
        where = {} if partition is None else {"partition": partition}
        producer.produce(topic, value, key=b"k%d" % i, headers=[("n", b"%d" % i)], on_delivery=delivered, **where)
        producer.poll(0)
    assert producer.flush(30) == 0, "not all was delivered"
    assert not errors, errors
    return offsets


def consumer(group, **config):
    base = {"bootstrap.servers": BROKER, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer(dict(base, **{k.replace("_", "."): v for k, v in config.items()}))


def take(c, count, timeout=40):
    found, end = [], time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < end, "%d of %d messages" % (len(found), count)
        msg = c.poll(0.5)
        if msg is None:
            continue
        if msg.error():
            raise KafkaException(msg.error())
        found.append(msg)
    return found


def codecs():
    for codec in "none", "gzip", "snappy", "lz4", "zstd":
        topic = unique(codec)
        create(topic)
        values = [b"%d " % i * 50 for i in range(300)]
        produce(topic, values, compression_type=codec, enable_idempotence=True)
        c = consumer(topic)
        c.assign([TopicPartition(topic, 0, 0)])
        found = take(c, len(values))
        assert [m.value() for m in found] == values
        assert [m.offset() for m in found] == list(range(len(values)))
        assert found[7].headers() == [("n", b"7")] and found[7].key() == b"k7"
        c.close()


def group(**config):
    topic = unique("group")
    create(topic, 6)
    for p in range(6):
        produce(topic, [b"%d" % i for i in range(20)], partition=p)
    a, b = consumer(topic, **config), consumer(topic, **config)
    a.subscribe([topic])
    take(a, 120)
    assert len(a.assignment()) == 6
    b.subscribe([topic])

    def shared():
        for c in a, b:
            msg = c.poll(0.05)
            assert msg is None or not msg.error(), msg.error()
        return len(a.assignment()) == 3 and len(b.assignment()) == 3

    eventually(shared, 60)
    b.close()

    def alone():
        a.poll(0.1)
        return len(a.assignment()) == 6

    eventually(alone, 60)
    a.commit(offsets=[TopicPartition(topic, p, 20) for p in range(6)], asynchronous=False)
    a.close()
    c = consumer(topic, **config)
    assert {t.offset for t in c.committed([TopicPartition(topic, p) for p in range(6)], timeout=20)} == {20}
    produce(topic, [b"more"], partition=4)
    c.subscribe([topic])
    more = take(c, 1)[0]
    assert (more.partition(), more.offset(), more.value()) == (4, 20, b"more")
    c.close()


def group_eager():
    group(partition_assignment_strategy="range")


def group_cooperative():
    group(partition_assignment_strategy="cooperative-sticky")


def group_static():
    topic = unique("static")
    create(topic, 2)
    produce(topic, [b"a"], partition=0)
    for _ in range(2):
        c = consumer(topic, group_instance_id="one", session_timeout_ms=10000)
        c.subscribe([topic])
        assert take(c, 1)[0].value() == b"a"
        c.close()


def group_consumer_protocol():
    if not CURRENT:
        return "skip"
    group(group_protocol="consumer")


def group_regex():
    prefix = unique("regex")
    create(prefix + "-a")
    create(prefix + "-b")
    for suffix in "a", "b":
        produce(prefix + "-" + suffix, [suffix.encode()])
    c = consumer(prefix)
    c.subscribe(["^" + prefix + "-.*"])
    assert sorted(m.value() for m in take(c, 2)) == [b"a", b"b"]
    c.close()


def offsets():
    topic = unique("offsets")
    create(topic)
    producer = Producer({"bootstrap.servers": BROKER})
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=1000000 + 1000 * i)
    assert producer.flush(30) == 0
    c = consumer(topic)
    assert c.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 10)
    found = c.offsets_for_times([TopicPartition(topic, 0, 1004500)], timeout=20)
    assert found[0].offset == 5, found
    found = c.offsets_for_times([TopicPartition(topic, 0, 2000000)], timeout=20)
    assert found[0].offset == -1, found  # OFFSET_END
    c.assign([TopicPartition(topic, 0, 8)])
    assert [m.value() for m in take(c, 2)] == [b"8", b"9"]
    c.seek(TopicPartition(topic, 0, 3))
    assert take(c, 1)[0].offset() == 3
    assert c.committed([TopicPartition(topic, 0)], timeout=20)[0].offset < 0
    c.close()


def tail():
    """A consumer that waits at the end gets what comes."""
    topic = unique("tail")
    create(topic)
    c = consumer(topic)
    c.assign([TopicPartition(topic, 0, 0)])
    assert c.poll(1) is None
    began = time.monotonic()
    produce(topic, [b"x"])
    assert take(c, 1)[0].value() == b"x"
    assert time.monotonic() - began < 5
    c.close()


def topics():
    topic = unique("topics")
    create(topic, 2, {"retention.ms": "3600000", "cleanup.policy": "delete"})
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        raise AssertionError("a topic was created twice")
    except KafkaException as e:
        assert e.args[0].name() == "TOPIC_ALREADY_EXISTS", e
    try:
        bad = unique("bad")
        admin.create_topics([NewTopic(bad, 1, 1, config={"no.such.thing": "1"})])[bad].result(30)
        raise AssertionError("an unknown setting was taken")
    except KafkaException as e:
        assert e.args[0].name() == "INVALID_CONFIG", e
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    config = list(admin.describe_configs([resource]).values())[0].result(30)
    assert config["retention.ms"].value == "3600000"
    assert config["cleanup.policy"].value == "delete"
    assert config["max.message.bytes"].value == "1048588"
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "7200000"})
    list(admin.alter_configs([change]).values())[0].result(30)

    def changed():
        config = list(admin.describe_configs([resource]).values())[0].result(30)
        return config["retention.ms"].value == "7200000"

    eventually(changed)
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def brokers():
    metadata = admin.list_topics(timeout=10)
    assert metadata.cluster_id and metadata.brokers
    assert metadata.controller_id in metadata.brokers
    for b in metadata.brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(b))
        assert list(admin.describe_configs([resource]).values())[0].result(30)


def groups():
    """The newer parts of the admin client."""
    if not CURRENT:
        return "skip"
    from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
    from confluent_kafka.admin import OffsetSpec

    topic = unique("groups")
    create(topic)
    produce(topic, [b"a", b"b", b"c"])
    c = consumer(topic)
    c.subscribe([topic])
    take(c, 3)
    c.commit(asynchronous=False)
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert described.state == ConsumerGroupState.STABLE and len(described.members) == 1
    assert topic in [g.group_id for g in admin.list_consumer_groups().result(30).valid]
    c.close()
    wanted = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])]
    found = admin.list_consumer_group_offsets(wanted)[topic].result(30)
    assert found.topic_partitions[0].offset == 3
    changed = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 1)])]
    admin.alter_consumer_group_offsets(changed)[topic].result(30)
    assert admin.list_consumer_group_offsets(wanted)[topic].result(30).topic_partitions[0].offset == 1
    admin.delete_consumer_groups([topic])[topic].result(30)
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert list(latest.values())[0].result(30).offset == 3
    admin.delete_records([TopicPartition(topic, 0, 2)])
    low = eventually(lambda: list(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values())[0].result(30).offset)
    assert low == 2
    assert admin.describe_cluster().result(30).controller
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(30)
    assert len(described.partitions) == 1 and described.partitions[0].leader


def too_large():
    topic = unique("large")
    create(topic, 1, {"max.message.bytes": "10000"})
    try:
        produce(topic, [b"x" * 20000])
        raise AssertionError("a message that is too large was taken")
    except AssertionError as e:
        assert "MSG_SIZE_TOO_LARGE" in str(e), e


print("confluent_kafka", confluent_kafka.version()[0], "librdkafka", confluent_kafka.libversion()[0])
main("confluent", [brokers, topics, codecs, offsets, tail, group_eager, group_cooperative, group_static,
                   group_regex, group_consumer_protocol, groups, too_large])
