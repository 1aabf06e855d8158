//! The metrics of the code, the documentation, the alerts and the dashboard are one list.

use super::scrape::recorded;
use crate::support::{
    MS, get,
    ledger::{Answer, Ledger},
    request,
    script::{Reply, Script},
    send, steady,
};
use metrics::Unit;
use std::collections::{BTreeMap, BTreeSet};
use tower::Layer;
use tower_retry_budget::{
    HoldOff, RetryBudgetLayer,
    budget::StoreMode,
    control::{Gates, Mode},
    observe::{
        Observe,
        metrics::{ALL, Kind, Metric, Metrics},
    },
    policy::AdaptiveLimits,
    reason::StopReason,
};

#[test]
fn the_documentation_lists_what_there_is() {
    let page = include_str!("../../src/observe/metrics/metrics.md");
    let documented: Vec<Vec<String>> = page
        .lines()
        .skip(2)
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect();
    assert_eq!(documented.len(), ALL.len());
    for (row, metric) in documented.iter().zip(ALL) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            _ => panic!("a kind without a word for it"),
        };
        let unit = match metric.unit {
            Unit::Count => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            other => panic!("no word for {other:?}"),
        };
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let expected = [
            format!("`{}`", metric.name),
            kind.into(),
            labels.join(", "),
            unit.into(),
        ];
        assert_eq!(row[..4], expected);
    }
}

/// Names and labels are fit for Prometheus, and a unit is in the name.
#[test]
fn names_say_kind_and_unit() {
    let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len(), "a name is there twice");
    for metric in ALL {
        let fit = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(fit(metric.name) && metric.labels.iter().all(|label| fit(label)));
        assert!(!metric.help.is_empty());
        assert_eq!(
            metric.kind == Kind::Counter,
            metric.name.ends_with("_total")
        );
        assert_eq!(
            metric.unit == Unit::Seconds,
            metric.name.ends_with("_seconds")
        );
        assert_eq!(metric.unit == Unit::Bytes, metric.name.ends_with("_bytes"));
        assert_eq!(metric.kind == Kind::Histogram, !metric.buckets.is_empty());
        assert!(metric.buckets.is_sorted());
    }
}

#[test]
fn a_scrape_shows_these_with_these_labels_and_no_others() {
    let metrics = Metrics::new();
    let answers = [Answer::Grant, Answer::Deny(StopReason::Budget)];
    let ledger = RetryBudgetLayer::new()
        .shared_budget(Ledger::new(answers))
        .hold_off(HoldOff::new())
        .adaptive(AdaptiveLimits::default())
        .observe(metrics.clone());
    let own = RetryBudgetLayer::new().observe(metrics.clone());
    recorded(&metrics.clone(), |scraper| async move {
        let policy = steady().build().expect("a valid policy");
        let replies = [
            Reply::retry_after(503, "1"),
            200.into(),
            502.into(),
            500.into(),
        ];
        let service = ledger.policy(policy).layer(Script::new(replies));
        for method in ["GET", "GET", "POST"] {
            send(&service, request(method, ""))
                .await
                .expect("a response");
        }
        let observed = own.clone().gates(Gates::all(Mode::Observe));
        send(&observed.layer(Script::always(502)), get())
            .await
            .expect("a response");
        send(&own.layer(Script::always(200)), get())
            .await
            .expect("a response");
        tokio::time::sleep(MS).await;
        metrics.store_mode_changed(StoreMode::Fleet);
        metrics.store_failed("timeout");
        metrics.configuration_changed("a");

        let scrape = scraper.scrape();
        let mut found = BTreeMap::new();
        for series in scrape.values.keys() {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let name = name.strip_prefix("tower_retry_").expect("the prefix");
            let metric = find(name).unwrap_or_else(|| panic!("{name} is not listed"));
            let labels: BTreeSet<_> = labels
                .trim_end_matches('}')
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(label, _)| label)
                .filter(|label| *label != "le")
                .collect();
            let expected: BTreeSet<_> = metric.labels.iter().copied().collect();
            assert_eq!(labels, expected, "{series}");
            found.insert(metric.name, metric);
        }
        for metric in ALL {
            assert!(
                found.contains_key(metric.name),
                "{} is missing",
                metric.name
            );
            let help = format!("# HELP tower_retry_{} {}", metric.name, metric.help);
            assert!(scrape.text.contains(&help), "{help}");
        }
        assert_eq!(found.len(), ALL.len());
    });
}

/// The metric that a series belongs to.
fn find(name: &str) -> Option<&'static Metric> {
    let histogram = ["_bucket", "_sum", "_count"];
    let stem = histogram.iter().find_map(|end| name.strip_suffix(end));
    ALL.iter().find(|metric| {
        metric.name == name || (metric.kind == Kind::Histogram && Some(metric.name) == stem)
    })
}

const ALERTS: &str = include_str!("../../examples/observability/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../examples/observability/alerts_test.yml");
const DASHBOARD: &str = include_str!("../../examples/observability/dashboard.json");

/// Labels that come from Prometheus, from histograms, and from the alerts themselves.
const FOREIGN: [&str; 7] = [
    "job",
    "instance",
    "le",
    "alertname",
    "alertstate",
    "severity",
    "__name__",
];

/// Each metric that a text names, with the labels that it is selected by.
fn selected(text: &str) -> Vec<(String, Vec<String>)> {
    let text = text.replace("\\\"", "\"");
    let mut selected = Vec::new();
    for part in text.split("tower_retry_").skip(1) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = selector
            .into_iter()
            .flat_map(|(labels, _)| labels.split(','));
        let labels = labels.filter_map(|label| label.split_once(['=', '!']));
        let labels = labels.map(|(label, _)| label.trim().to_owned()).collect();
        selected.push((name.to_owned(), labels));
    }
    selected
}

#[test]
fn alerts_and_dashboard_name_no_other_metric_or_label() {
    for (file, text) in [
        ("alerts.yml", ALERTS),
        ("alerts_test.yml", ALERTS_TEST),
        ("dashboard.json", DASHBOARD),
    ] {
        let selected = selected(text);
        assert!(selected.len() > 20, "{file}");
        for (name, labels) in selected {
            let metric = find(&name).unwrap_or_else(|| panic!("{file}: no metric {name}"));
            for label in labels {
                let known = metric.labels.contains(&&*label) || FOREIGN.contains(&&*label);
                assert!(known, "{file}: {name} has no label {label}");
            }
        }
        for part in text.split("by (").skip(1) {
            let (labels, _) = part.split_once(')').expect("a list that ends");
            for label in labels.split(',').map(str::trim) {
                let ours = ALL.iter().any(|metric| metric.labels.contains(&label));
                assert!(ours || FOREIGN.contains(&label), "{file}: no label {label}");
            }
        }
    }
}

#[test]
fn runbooks_and_guides_name_no_metric_that_is_not_there() {
    let incident = include_str!("../../src/observe/metrics/incident.md");
    let migrating = include_str!("../../MIGRATING.md");
    let texts = [ALERTS, incident, migrating].join(" ");
    let words = texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ends = ["_total", "_seconds", "_bytes"];
    for word in words.filter(|word| ends.iter().any(|end| word.ends_with(end))) {
        let name = word.strip_prefix("tower_retry_").unwrap_or(word);
        assert!(find(name).is_some(), "{word}");
    }
}

#[test]
fn the_dashboard_shows_everything_that_is_written() {
    let shown: BTreeSet<_> = selected(DASHBOARD)
        .iter()
        .filter_map(|(name, _)| find(name))
        .map(|metric| metric.name)
        .collect();
    let hidden: Vec<_> = ALL
        .iter()
        .filter(|metric| !shown.contains(metric.name))
        .map(|metric| metric.name)
        .collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}
