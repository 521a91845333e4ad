"""kafka-python, a client written in Python, of the version that is installed."""

import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from smoke import BROKER, eventually, main, unique


def create(topic, partitions=1):
    admin = KafkaAdminClient(bootstrap_servers=BROKER)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


def produce(topic, values, partition=None, **config):
    producer = KafkaProducer(bootstrap_servers=BROKER, acks="all", **config)
    futures = [producer.send(topic, v, key=b"k", headers=[("h", b"x")], partition=partition) for v in values]
    producer.flush(30)
    found = [f.get(30).offset for f in futures]
    producer.close()
    return found


def take(consumer, count, timeout=40):
    found, end = [], time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < end, "%d of %d messages" % (len(found), count)
        for records in consumer.poll(500).values():
            found.extend(records)
    return found


def produce_and_fetch():
    topic = unique("kp")
    create(topic)
    values = [b"%d " % i * 20 for i in range(200)]
    assert produce(topic, values) == list(range(200))
    assert produce(topic, values, compression_type="gzip") == list(range(200, 400))
    consumer = KafkaConsumer(bootstrap_servers=BROKER, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning(TopicPartition(topic, 0))
    found = take(consumer, 400)
    assert [r.value for r in found] == values + values
    assert list(found[3].headers) == [("h", b"x")]
    consumer.close()


def group():
    topic = unique("kpg")
    create(topic, 4)
    for p in range(4):
        produce(topic, [b"%d" % i for i in range(10)], partition=p)
    config = dict(bootstrap_servers=BROKER, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False)
    a = KafkaConsumer(topic, **config)
    take(a, 40)
    a.commit()
    # A poll may last as long as a rebalance, which needs the other's poll.
    stop, shares = threading.Event(), []

    def other():
        b = KafkaConsumer(topic, **config)
        while not stop.is_set():
            b.poll(50)
            shares.append(len(b.assignment()))
        b.close()

    thread = threading.Thread(target=other, daemon=True)
    thread.start()

    def has(count):
        a.poll(50)
        return len(a.assignment()) == count

    eventually(lambda: has(2) and shares[-1:] == [2], 60)
    stop.set()
    eventually(lambda: has(4), 60)
    thread.join(30)
    assert a.committed(TopicPartition(topic, 1)) == 10
    a.close()


def offsets():
    topic = unique("kpo")
    create(topic)
    producer = KafkaProducer(bootstrap_servers=BROKER)
    for i in range(10):
        producer.send(topic, b"%d" % i, timestamp_ms=1000000 + 1000 * i)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=BROKER, group_id=None)
    p = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([p])[p] == 0
    assert consumer.end_offsets([p])[p] == 10
    assert consumer.offsets_for_times({p: 1004500})[p].offset == 5
    assert consumer.offsets_for_times({p: 2000000})[p] is None
    consumer.close()


def admin():
    topic = unique("kpa")
    create(topic)
    try:
        create(topic)
        raise AssertionError("a topic was created twice")
    except TopicAlreadyExistsError:
        pass
    client = KafkaAdminClient(bootstrap_servers=BROKER)
    assert topic in client.list_topics()
    assert client.describe_cluster()["cluster_id"]
    # The name has changed with a major version.
    getattr(client, "list_groups" if hasattr(client, "list_groups") else "list_consumer_groups")()
    client.delete_topics([topic])
    eventually(lambda: topic not in client.list_topics())
    client.close()


print("kafka-python", kafka.__version__)
main("kafka-python", [produce_and_fetch, group, offsets, admin])
