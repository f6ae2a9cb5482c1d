//! `/metrics`: what was collected, in the text forms of Prometheus and OpenMetrics.
//!
//! Names follow <https://prometheus.io/docs/practices/naming/>: the prefix `ordo_` (or `process_`, for what
//! every process has), base units in names, `_total` behind counters. Every label has few values: partitions,
//! nodes, commands, codes of errors (which are bounded: [`crate::error_counts::CODES_MAX`]). A metric is
//! listed with its help even while it has no value, so that rules and dashboards can be held against the
//! list.

mod cluster;
mod geo;
mod hierarchy;
mod server;

use super::scrape::Scrape;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
    prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use redis_surface::REDIS_VERSION;
use std::fmt;
use std::sync::Arc;

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Prometheus,
    OpenMetrics,
}

impl Form {
    /// The form that a request's header `Accept` prefers: OpenMetrics only if it is asked for by name, and
    /// with a quality of at least that of plain text.
    pub fn preferred(accept: &str) -> Form {
        let quality = |types: &[&str]| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let is_meant = types.iter().any(|name| parts.clone().next() == Some(name));
                let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
                is_meant.then(|| quality.unwrap_or(1.0))
            });
            ranges.fold(0.0, f64::max)
        };
        let open = quality(&["application/openmetrics-text"]);
        match open > 0.0 && open >= quality(&["text/plain", "text/*"]) {
            true => Form::OpenMetrics,
            false => Form::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Everything that was collected, in a form.
pub fn encode(scrape: &Arc<Scrape>, form: Form) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(scrape.clone())));
    let mut out = String::new();
    match form {
        Form::Prometheus => prometheus_text::encode(&mut out, &registry)?,
        Form::OpenMetrics => text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

struct Metrics(Arc<Scrape>);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(..)")
    }
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer(encoder);
        let Scrape { process, is_ready, server } = &*self.0;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("redis_version", REDIS_VERSION)];
        out.begin("ordo_build", None, "The build of this process.", MetricType::Info)?.encode_info(&build)?;
        out.gauge("ordo_loading", "1 while the data is being loaded, else 0.", u32::from(server.is_none()))?;
        out.gauge("ordo_ready", "1 if /readyz says ready, else 0.", u32::from(*is_ready))?;
        out.gauge_in(
            "process_start_time",
            Unit::Seconds,
            "When the process started, in seconds since 1970.",
            process.started_s,
        )?;
        out.counter_in(
            "process_cpu",
            Unit::Seconds,
            "Processor time of the process and of the system on its behalf.",
            process.cpu.user_s + process.cpu.system_s,
        )?;
        out.gauge_in(
            "process_resident_memory",
            Unit::Bytes,
            "Memory that the system gave the process.",
            process.resident_bytes,
        )?;
        out.gauge("process_open_fds", "Files and sockets that are open.", process.open_files)?;
        out.gauge("process_max_fds", "Files and sockets that may be open.", process.open_files_max)?;
        match server {
            Some(server) => server::encode(server, &mut out),
            None => Ok(()),
        }
    }
}

/// Writes metrics. Help texts are sentences.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        unit: Option<&'s Unit>,
        help: &str,
        metric_type: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, unit, metric_type)
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.begin(name, None, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauge_in(&mut self, name: &str, unit: Unit, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.begin(name, Some(&unit), help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        counter(&mut self.begin(name, None, help, MetricType::Counter)?, value)
    }

    fn counter_in(
        &mut self,
        name: &str,
        unit: Unit,
        help: &str,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        counter(&mut self.begin(name, Some(&unit), help, MetricType::Counter)?, value)
    }

    /// A gauge with a value for each set of labels.
    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, unit.as_ref(), help, MetricType::Gauge)?;
        values.into_iter().try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    /// A counter with a value for each set of labels.
    fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, unit.as_ref(), help, MetricType::Counter)?;
        values.into_iter().try_for_each(|(labels, value)| counter(&mut family.encode_family(&labels)?, value))
    }

    /// A histogram of durations. `buckets` are upper bounds in seconds, each with how many took longer than
    /// the bound before it.
    fn durations(&mut self, name: &str, help: &str, sum_s: f64, buckets: &[(f64, u64)]) -> fmt::Result {
        let count = buckets.iter().map(|&(_, count)| count).sum();
        let mut metric = self.begin(name, Some(&Unit::Seconds), help, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(sum_s, count, buckets, None)
    }
}

fn counter(metric: &mut MetricEncoder<'_>, value: impl EncodeCounterValue) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

/// Milliseconds as seconds.
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
