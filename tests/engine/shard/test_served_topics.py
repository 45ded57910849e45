"""The count of partitions is the sum over the topics, and each has its id, after every change of them."""

from hypothesis import given
from hypothesis import strategies as st

from engine.directory.topics import TopicRecord
from engine.shard.served_topics import ServedTopics, Topic

names = st.sampled_from("abc")
steps = st.lists(st.tuples(st.sampled_from(["serve", "change", "let_go"]), names, st.integers(1, 9)))


def record(name: str, partitions: int) -> TopicRecord:
    return TopicRecord(name, f"id of {name}", partitions, 1, {}, 0)


@given(steps)
def test_the_count_of_partitions_is_the_sum_over_the_topics(steps):
    topics = ServedTopics()
    for step, name, partitions in steps:
        of = record(name, partitions)
        if step == "serve":
            topics.serve({name: Topic(of, of.settings)})
        elif step == "let_go":
            topics.stop_serving(name)
        elif name in topics:
            topics.change(topics[name], of)
        assert topics.partition_count == sum(topic.record.partitions for topic in topics.values())
        assert topics.by_id == {topic.record.topic_id: topic for topic in topics.values()}
