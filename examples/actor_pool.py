"""A model that is loaded once for each actor, on as many actors as fit on all clusters."""

import time
from collections.abc import Iterator

from ray_multicluster_scheduler import submit_actor_pool


class Classifier:
    """Tells what a text is about, by the words that it has learned."""

    def __init__(self, topics: dict[str, set[str]]) -> None:
        """Load the model; a real one takes minutes, so it is done once for each actor."""
        self.topics = topics

    def classify(self, text: str) -> str:
        """Return the topic that shares most words with the text."""
        time.sleep(0.05)
        words = set(text.lower().split())
        return max(self.topics, key=lambda topic: len(self.topics[topic] & words))


TOPICS = {"weather": {"rain", "sun", "wind"}, "trains": {"train", "late", "station"}}


def texts() -> Iterator[str]:
    """Yield what is to be classified; it may be any number, only a window of it is in memory."""
    for number in range(600):
        yield f"the train {number} is late again" if number % 3 else f"{number} hours of rain and wind"


with submit_actor_pool(Classifier, args=[TOPICS], size="fit", resource_requirements={"CPU": 1}) as pool:
    topics = list(pool.map(Classifier.classify, texts()))
    print(f"{pool.size} actors on {', '.join(pool.clusters())}")

for topic in TOPICS:
    print(f"{topic}: {topics.count(topic)} texts")
