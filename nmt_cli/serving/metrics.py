"""Counters for Prometheus, at /metrics. The counts of the workers are read at each request."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from .models import ServedModels

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of nmt_request_seconds, in seconds."""


class Metrics(Collector):
    """The counters. Each has a description. The rate of nmt_tokens is the tokens per second."""

    def __init__(self, models: ServedModels, processes: int = 1) -> None:
        self.models = models
        self.registry = CollectorRegistry()
        Gauge(
            "nmt_processes",
            "Processes of the server. All other metrics are of the one that answered this request.",
            registry=self.registry,
        ).set(processes)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self.requests = Counter(
            "nmt_requests", "Requests that were answered.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "nmt_request_seconds",
            "Seconds from a request to the end of its answer.",
            ["path"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.under_way = Gauge("nmt_requests_under_way", "Requests that are not answered yet.", registry=self.registry)
        self.sentences = Counter("nmt_sentences", "Sentences that were translated.", ["pair"], registry=self.registry)
        self.characters = Counter(
            "nmt_characters", "Characters that were translated.", ["pair"], registry=self.registry
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the counts of the models and of their workers."""
        waiting = GaugeMetricFamily("nmt_queue_sentences", "Sentences that no worker has yet.", labels=["pair"])
        running = GaugeMetricFamily("nmt_running_sentences", "Sentences that workers search.", labels=["pair"])
        tokens = CounterMetricFamily(
            "nmt_tokens", "Tokens of translations, since the model was loaded.", labels=["pair"]
        )
        for (source, target), model in self.models.pairs.models.items():
            pool, pair = model.translator.pool, [f"{source}-{target}"]
            waiting.add_metric(pair, pool.waiting)
            running.add_metric(pair, pool.running)
            tokens.add_metric(pair, pool.tokens)
        yield from (waiting, running, tokens)
        yield CounterMetricFamily("nmt_reloads", "Times that the models were loaded anew.", self.models.reloads)
        yield CounterMetricFamily(
            "nmt_failed_reloads", "Times that models could not be loaded anew.", self.models.failed_reloads
        )
