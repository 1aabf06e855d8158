//! A recorder for one test, and what a scrape of it says.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{collections::BTreeMap, future::Future};
use tower_retry_budget::observe::metrics::Metrics;

/// The value of each series, by its name and labels as they are printed.
pub(crate) struct Scrape {
    pub(crate) text: String,
    pub(crate) values: BTreeMap<String, f64>,
}

impl Scrape {
    fn new(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        let values = values.map(|(series, value)| {
            let value = value.parse().expect("a number");
            (series.to_owned(), value)
        });
        Self {
            values: values.collect(),
            text,
        }
    }

    /// The value of a series; `labels` without the dependency of the tests.
    pub(crate) fn get(&self, name: &str, labels: &str) -> Option<f64> {
        let comma = if labels.is_empty() { "" } else { "," };
        let series =
            format!(r#"tower_retry_{name}{{dependency="http://search:8080"{comma}{labels}}}"#);
        self.values.get(&series).copied()
    }

    /// The series of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        let start = format!("tower_retry_{name}{{");
        let series = self.values.keys();
        series.filter(|series| series.starts_with(&start)).count()
    }
}

/// What a test scrapes with.
#[derive(Clone)]
pub(crate) struct Scraper {
    metrics: Metrics,
    handle: PrometheusHandle,
}

impl Scraper {
    pub(crate) fn scrape(&self) -> Scrape {
        self.metrics.refresh();
        self.look()
    }

    /// A scrape by somebody who does not know of `refresh`.
    pub(crate) fn look(&self) -> Scrape {
        Scrape::new(self.handle.render())
    }
}

/// Runs a test with a recorder of its own, on a clock that stands still.
pub(crate) fn recorded<F: Future>(metrics: &Metrics, test: impl FnOnce(Scraper) -> F) -> F::Output {
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in metrics.buckets() {
        let builder_with = builder.set_buckets_for_metric(Matcher::Full(name), buckets);
        builder = builder_with.expect("there are buckets");
    }
    let recorder = builder.build_recorder();
    let scraper = Scraper {
        metrics: metrics.clone(),
        handle: recorder.handle(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(test(scraper)))
}
