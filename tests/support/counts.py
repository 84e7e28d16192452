"""What was counted, as a test reads it."""

from typing import cast

from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from curtilage.client.telemetry import METRIC_PREFIX, Telemetry


class Counts:
    """Telemetry that is only kept here."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.telemetry = Telemetry(readers=[self._reader])

    def of(self, name: str) -> dict[str, float]:
        """Return by its labels, in order of their names' values, what a metric says.

        Of a histogram, how many values it has.
        """
        data = self._reader.get_metrics_data()
        found = {
            metric.name: {
                " ".join(sorted(_labels(point))): _value(point)
                for point in metric.data.data_points
            }
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        return found.get(f"{METRIC_PREFIX}{name}", {})


def _labels(point: object) -> list[str]:
    return list(cast("dict[str, str]", getattr(point, "attributes")).values())  # noqa: B009


def _value(point: object) -> float:
    if isinstance(point, HistogramDataPoint):
        return point.count
    return float(getattr(point, "value"))  # noqa: B009
